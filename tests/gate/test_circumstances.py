"""What a refusal says of the plan and the machine, beside the code."""

import pytest
from gate_runs import only, run

from tfx_perf.gate import explanation
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.verdict import evaluate
from tfx_perf.report import gate_report

TIME, PEAK = "step_time_seconds", "peak_flops_per_second"
XLA, CALLS = "50 steps in one XLA computation", "43 steps per call, fused update"
LACK = "3.00 s of it were left; training.trial_budget_seconds has room if it is larger by 9"


def judged(value, *, plan=XLA, lack="", peak=124e9, is_of_script=False, **settings):
    """The decision on a run after three that took 1 s a step, with `XLA`, at 120 GFLOP/s."""
    known = [
        run(f"r{i}", minute=i, **{TIME: 1.0, PEAK: 120e9 + i}).model_copy(update={"plan": XLA})
        for i in range(3)
    ]
    own = run("new", minute=9, **{TIME: value, PEAK: peak})
    names = {"plan": plan, "budget_lack": lack, "is_of_script": is_of_script}
    return evaluate(
        own.model_copy(update=names),
        ledger=Ledger(entries=tuple(known)),
        settings=only(**{TIME: {"margin": 0.03}}).model_copy(update=settings),
    )


def remedy(decision):
    """What it says to do."""
    (outcome,) = decision.outcomes
    return outcome.remedy.suggestion


def test_another_plan_is_named_and_the_budget_where_the_trials_ended_with_it():
    decision = judged(5.0, plan=CALLS, lack=LACK)
    said = (
        f"It was trained with another plan: {CALLS}; blessed run r2 with: {XLA}. Its trials ended "
        f"with their budget: {LACK}."
    )
    assert said in next(explanation.lines(decision))
    assert said in gate_report.report_on(decision).verdict
    assert "another plan" in judged(5.0, plan=CALLS).headline
    assert "trials" not in judged(5.0, plan=CALLS).headline
    assert "trials" not in judged(5.0, lack=LACK).headline  # they did no harm


def test_a_slower_machine_is_named_and_what_measures_again_there():
    decision = judged(2.0, peak=38e9)
    assert (
        "The machine was slower: a matrix product ran at 38 GFLOP/s, in the blessed runs at no "
        "less than 120." in decision.headline
    )
    assert "with gate.escalate_seconds it is measured again" in remedy(decision)
    assert "escalate" not in remedy(judged(2.0, peak=38e9, escalate_seconds=60.0))
    assert "escalate" not in remedy(judged(2.0))


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_a_script_which_nobody_measures_again_is_to_be_run_again(seconds):
    slow = judged(2.0, peak=38e9, is_of_script=True, escalate_seconds=seconds)
    assert remedy(slow).endswith("run the script again while the machine does no other work")
    assert "again" not in remedy(judged(2.0, is_of_script=True, escalate_seconds=seconds))


@pytest.mark.parametrize(("value", "plan"), [(1.0, CALLS), (2.0, XLA), (2.0, "")])
def test_nothing_is_said_of_a_blessed_run_nor_of_the_same_plan_nor_of_one_that_nobody_knows(
    value, plan
):
    headline = judged(value, plan=plan).headline
    assert "plan" not in headline
    assert "slower" not in headline
