"""The decision over all rules."""

import math

import pydantic
import pytest
from gate_runs import ELSEWHERE, HERE, ledger_of, noisy, only, run

from tfx_perf.gate.decision import GateRecord, Verdict
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.verdict import evaluate
from tfx_perf.report import gate as gate_report

KEY = "step_time_seconds"
CHANGE = only(step_time_seconds={"tolerance": 0.05, "max_regression": 0.25})
LEDGER = ledger_of(KEY, [1.0])


def judged(value, *, ledger=LEDGER, settings=CHANGE, **figures):
    return evaluate(run("new", **{KEY: value}, **figures), ledger=ledger, settings=settings)


def test_the_cause_comes_first_for_an_unmeasured_run():
    candidate = run("b", environment={}).model_copy(update={"unmeasured": "no fit was called"})
    record = evaluate(candidate, ledger=LEDGER, settings=CHANGE)
    cause = "step_time_seconds (invalid): Nothing was measured: no fit was called"
    assert record.headline.startswith(f"Refused by 1 of 1 check. {cause}")
    assert "not recorded" not in gate_report.report_on(record).render()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_run_cannot_hold_a_figure_that_is_not_finite(value):
    with pytest.raises(pydantic.ValidationError):
        run("a", step_time_seconds=value)
    with pytest.raises(pydantic.ValidationError):
        run("a", evaluation={"auc": value})


@pytest.mark.parametrize(("steps", "blessed"), [(49.0, False), (50.0, True)])
def test_a_few_steps_are_no_measurement(steps, blessed):
    record = judged(1.0, train_step_count=steps)
    assert record.blessed is blessed
    if not blessed:
        assert record.outcomes[0].verdict is Verdict.INVALID
        assert "49 steps" in record.headline


def test_one_refusal_outweighs_any_number_of_passes():
    settings = only(train_loss={"max": 1.0}, step_time_seconds={"max": 0.5})
    record = judged(0.6, ledger=Ledger(), settings=settings, train_loss=0.1)
    assert not record.blessed
    assert record.figures() == {
        "rule_count": 2.0, "failed_rule_count": 1.0, "baseline_run_count": 0.0,
        "cost_per_million_examples": None,
    }  # fmt: skip
    assert record.headline.startswith("Refused by 1 of 2 checks. step_time_seconds (limit)")


def test_incomparable_runs_are_distinguished_from_worse_ones():
    known = Ledger(
        entries=(
            run("a", environment=ELSEWHERE, step_time_seconds=1.0),
            run("b", minute=1, train_loss=1.0),
        )
    )
    settings = only(
        step_time_seconds={"tolerance": 0.05, "advisory": True},
        train_loss={"tolerance": 0.05, "advisory": True},
    )
    record = judged(1.0, ledger=known, settings=settings, train_loss=2.0)
    assert record.headline.startswith(
        "Blessed: 1 of 2 checks could be made, and none refused. Advisory rules not met: "
        "train_loss. Not comparable with a blessed run: step_time_seconds."
    )


def test_the_verdict_of_the_run_is_the_most_serious_refusal():
    noisy_ledger = ledger_of(KEY, [0.5, 1.5, 1.0])
    assert judged(1.0).verdict is Verdict.PASS
    assert judged(1.1, ledger=noisy_ledger).verdict is Verdict.INCONCLUSIVE
    both = only(step_time_seconds={"tolerance": 0.05, "max": 1.05})
    assert judged(1.1, ledger=noisy_ledger, settings=both).verdict is Verdict.LIMIT
    assert judged(1.0, settings=only()).verdict is Verdict.INVALID


@pytest.mark.parametrize("advisory", [False, True])
def test_the_same_arguments_give_the_same_record_which_survives_the_disk(advisory, tmp_path):
    settings = only(step_time_seconds={"tolerance": 0.05, "advisory": advisory})
    ledger = ledger_of(KEY, noisy(9, sd=0.02))
    record = judged(1.3, ledger=ledger, settings=settings)
    assert record == judged(1.3, ledger=ledger, settings=settings)
    record.write(tmp_path / "evaluation.json")
    assert GateRecord.read(tmp_path / "evaluation.json") == record
    assert record.outcomes[0].verdict is Verdict.REGRESSION
    assert math.isfinite(record.outcomes[0].highest)


def test_memory_is_not_checked_beside_parameter_servers_except_for_a_limit():
    served = run("new", environment={**HERE, "parameter_server_count": "1"})

    def verdict(run, **rule):
        settings = only(training_memory_bytes=rule)
        return evaluate(run, ledger=Ledger(), settings=settings).outcomes[0].verdict

    assert verdict(served, tolerance=0.05) is Verdict.SKIPPED
    assert verdict(served, max=1e9) is verdict(run("new"), tolerance=0.05) is Verdict.INVALID


@pytest.mark.parametrize(
    ("value", "rule", "verdict"),
    [
        (1.0, {"max": 1.0}, Verdict.PASS),
        (1.0000001, {"max": 1.0}, Verdict.LIMIT),
        (1.0, {"min": 1.0}, Verdict.PASS),
        (0.9999999, {"min": 1.0}, Verdict.LIMIT),
        (1.5, {"min": 1.0, "max": 2.0}, Verdict.PASS),
        (None, {"max": 1.0}, Verdict.INVALID),
        (None, {"max": 1.0, "optional": True}, Verdict.SKIPPED),
    ],
)
def test_limits_are_inclusive_and_need_a_value(value, rule, verdict):
    figures = {} if value is None else {"step_time_seconds": value}
    record = evaluate(run("a", **figures), ledger=Ledger(), settings=only(step_time_seconds=rule))
    (outcome,) = record.outcomes
    assert outcome.verdict is verdict
    assert record.blessed is (verdict in (Verdict.PASS, Verdict.SKIPPED))
    assert outcome.refuses is not record.blessed


def test_a_yes_or_no_figure_is_an_answer_and_not_an_amount():
    settings = only(memory_leak={"max": 0.0})
    for value, reason in (
        (0.0, "It is no, as it must be."),
        (1.0, "It is yes, but must be no."),
    ):
        record = evaluate(run("a", memory_leak=value), ledger=Ledger(), settings=settings)
        (outcome,) = record.outcomes
        assert outcome.reason == reason
        assert gate_report.allowed_in_words(outcome) == "no"
