"""Trainings that are too short for trials, according to InputTuner's measurements."""

import pytest
import training_cases
from perf_records import tuning_record

from tfx_perf.components import trainer_args
from tfx_perf.components.optimized_trainer import executor
from tfx_perf.components.training_job import TrainingJob
from tfx_perf.core import formatting, statistics
from tfx_perf.input.diagnosis import Diagnosis
from tfx_perf.training.speedups.steps_per_execution import CALL_SECONDS
from tfx_perf.training.tuning.earlier import Earlier

_RATE = 100_000.0  # examples a second: 0.64 ms for a batch of 64


def tuned(*, trained_example_count, rate=_RATE):
    interval = rate and statistics.Interval(value=rate, low=rate, high=rate)
    return tuning_record(
        batch_size=64,
        trained_example_count=trained_example_count,
        diagnosis=Diagnosis(
            pipeline_examples_per_second=statistics.Interval(value=1.0, low=1.0, high=1.0),
            train_examples_per_second=interval,
            together_examples_per_second=interval,
            headroom_ratio=None,
            bound="compute",
            rounds=3,
        ),
    )


@pytest.mark.parametrize(("step_count", "expected_runs"), [(480, 2), (96, 10)])
def test_plain_fit_trains_at_once_and_the_reason_has_the_figures(step_count, expected_runs):
    found = executor.too_short(
        tuned(trained_example_count=64 * step_count), expected_runs=expected_runs
    )
    assert found.plan.is_plain_fit
    took = formatting.format_seconds((CALL_SECONDS + 0.64e-3) * step_count)
    assert f"too short for trials: its steps take about {took} with Keras" in found.plan_reason
    assert found.is_final(expected_runs=expected_runs)
    assert not found.is_final(expected_runs=found.enough_runs)
    assert executor.too_short(
        tuned(trained_example_count=64 * step_count), expected_runs=found.enough_runs
    ) is None  # fmt: skip


def test_a_plan_found_with_other_arguments_says_nothing(tmp_path, monkeypatch):
    """InputTuner may have been given a hundred steps, and the training a million."""
    trainer = training_cases.Trainer(tmp_path)
    for digest in ("another", None):
        given = trainer.given(trainer.write_module(), expected_runs=2)
        job = TrainingJob.of(given[0], given[2])
        plan = tuned(trained_example_count=64.0).model_copy(
            update={"training_digest": job.code if digest is None else digest}
        )
        monkeypatch.setattr(trainer_args, "input_plan", lambda inputs, plan=plan: plan)
        found = executor.known_plan(job, Earlier({"code": "1"}, folder=None))
        if digest is None:
            assert "too short" in found.choice.plan_reason
            assert found.choice.key == {"code": "1"}
        else:
            assert found.choice is None


@pytest.mark.parametrize(
    "plan",
    [
        tuned(trained_example_count=64 * 100_000),
        tuned(trained_example_count=None),
        tuned(trained_example_count=64.0, rate=None),
    ],
)
def test_otherwise_trials_find_out(plan):
    assert executor.too_short(plan, expected_runs=2) is None
