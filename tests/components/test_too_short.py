"""Trainings that are too short for trials, as InputTuner has seen."""

import pytest

from tfx_perf import formatting, statistics
from tfx_perf.components.optimized_trainer import too_short
from tfx_perf.input.diagnosis.diagnosis import Diagnosis
from tfx_perf.input.record import TuningRecord
from tfx_perf.training.optimizations.steps_per_call import CALL_SECONDS

_RATE = 100_000.0  # examples a second: 0.64 ms for a batch of 64


def tuned(*, trained_example_count, rate=_RATE):
    fields = {name: 0 for name in ("memory_budget_bytes", "file_count", "file_bytes", "rounds")}
    interval = rate and statistics.Interval(value=rate, low=rate, high=rate)
    return TuningRecord(
        chosen="default",
        reason="it is fed",
        outcomes=(),
        batch_size=64,
        margin=0.02,
        memory_budget_configured=False,
        example_count=None,
        trained_example_count=trained_example_count,
        checked_example_count=0,
        compression="",
        tuning_time_seconds=1.0,
        diagnosis=Diagnosis(
            pipeline_examples_per_second=statistics.Interval(value=1.0, low=1.0, high=1.0),
            train_examples_per_second=interval,
            together_examples_per_second=interval,
            headroom_ratio=None,
            bound="compute",
            rounds=3,
        ),
        **fields,
    )


@pytest.mark.parametrize(("step_count", "planned_runs"), [(2000, 2), (500, 10)])
def test_plain_fit_trains_at_once_and_the_reason_has_the_figures(step_count, planned_runs):
    found = too_short.choice(
        tuned(trained_example_count=64 * step_count), planned_runs=planned_runs
    )
    assert found.plan.is_plain_fit
    took = formatting.format_seconds((CALL_SECONDS + 0.64e-3) * step_count)
    assert f"too short for trials: its steps take about {took} with plain" in found.plan_reason
    assert found.is_final(planned_runs=planned_runs)
    assert not found.is_final(planned_runs=found.enough_runs)
    assert too_short.choice(
        tuned(trained_example_count=64 * step_count), planned_runs=found.enough_runs
    ) is None  # fmt: skip


@pytest.mark.parametrize(
    "plan",
    [
        tuned(trained_example_count=64 * 100_000),
        tuned(trained_example_count=None),
        tuned(trained_example_count=64.0, rate=None),
    ],
)
def test_otherwise_trials_find_out(plan):
    assert too_short.choice(plan, planned_runs=2) is None
