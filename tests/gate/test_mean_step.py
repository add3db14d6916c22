"""Trainings that are so short that their mean step time says nothing."""

import pytest
from gate_runs import only, run

from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.outcome import Verdict
from tfx_perf.gate.verdict import evaluate

SETTINGS = only(
    step_time_seconds={"margin": 0.03}, examples_per_second={"margin": 0.03, "optional": True}
)


def judged(*, step_time_seconds=1.0, examples_per_second, error_ratio):
    """Returns the verdicts on a run beside one of a step a second and 100 examples a second."""
    before = run("old", step_time_seconds=1.0, examples_per_second=100.0)
    decision = evaluate(
        run(
            "new",
            step_time_seconds=step_time_seconds,
            examples_per_second=examples_per_second,
            step_time_error_ratio=error_ratio,
        ),
        ledger=Ledger(entries=(before,)),
        settings=SETTINGS,
    )
    return {outcome.metric: outcome for outcome in decision.outcomes}, decision.blessed


@pytest.mark.parametrize("examples_per_second", [100.0, 80.0, 50.0])
def test_a_stall_does_not_refuse_it(examples_per_second):
    found, blessed = judged(examples_per_second=examples_per_second, error_ratio=0.3)
    assert blessed
    rate = found["examples_per_second"]
    assert rate.verdict in (Verdict.NOT_CHECKED, Verdict.PASS)
    if rate.verdict is Verdict.NOT_CHECKED:
        assert "uncertain by 30.0%" in rate.reason


def test_a_slower_median_refuses_it_all_the_same():
    found, blessed = judged(step_time_seconds=1.3, examples_per_second=77.0, error_ratio=0.3)
    assert not blessed
    assert found["step_time_seconds"].verdict is Verdict.REGRESSION
    assert found["examples_per_second"].verdict is Verdict.INCONCLUSIVE


def test_a_long_training_is_held_to_its_mean():
    found, blessed = judged(examples_per_second=80.0, error_ratio=0.01)
    assert not blessed
    assert found["examples_per_second"].verdict is Verdict.REGRESSION


def test_noise_between_runs_stays_inconclusive():
    settings = only(
        step_time_seconds={"margin": 0.3},
        examples_per_second={"margin": 0.03, "noise": 0.2, "optional": True},
    )
    before = run("old", step_time_seconds=1.0, examples_per_second=100.0)
    decision = evaluate(
        run("new", step_time_seconds=1.0, examples_per_second=95.0, step_time_error_ratio=0.01),
        ledger=Ledger(entries=(before,)),
        settings=settings,
    )
    verdicts = {outcome.metric: outcome.verdict for outcome in decision.outcomes}
    assert verdicts["examples_per_second"] is Verdict.INCONCLUSIVE
