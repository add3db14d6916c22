"""Records for the tests of their readers."""

from tfx_perf.core.statistics import Interval
from tfx_perf.input.record import CandidateOutcome, TuningRecord
from tfx_perf.memory.record import ProfileRecord, StateSizes, StepMemory
from tfx_perf.training.record import TrainingRecord
from tfx_perf.training.speedups.plan import TrainingPlan


def training_record(step_time_seconds=0.1, **fields):
    """Returns the record of a training with that step time; other fields can be overridden."""
    step_time = Interval(value=step_time_seconds, low=step_time_seconds, high=step_time_seconds)
    usual = {
        "plan": TrainingPlan(),
        "plan_reason": "no trials",
        "environment": {"device_kind": "CPU", "global_batch_size": "64"},
        "step_time": step_time,
        "mean_step_time_seconds": step_time_seconds,
        "step_time_p90_seconds": step_time_seconds,
        "step_times": ((1, step_time_seconds),),
        "global_batch_size": 64,
        "parameter_count": 10,
        "train_step_count": 100,
        "time_to_first_step_seconds": 1.0,
        "compile_time_seconds": 0.5,
        "fit_time_seconds": 10.0,
        "trial_time_seconds": 0.0,
        "peak_memory_bytes": 1000,
        "peak_rss_bytes": 2000,
        "training_memory_bytes": 500,
        "losses": {"loss": (0.7, 0.5)},
    }
    return TrainingRecord(**{**usual, **fields})


def tuning_record(chosen="default", **fields):
    """Returns the record of a search with that outcome; other fields can be overridden."""
    default = CandidateOutcome(name="default", description="", status="measured")
    best = CandidateOutcome(name=chosen, description="", status="chosen")
    usual = {
        "reason": "for the test",
        "outcomes": (best,) if chosen == "default" else (default, best),
        "batch_size": 16,
        "rounds": 3,
        "margin": 0.02,
        "memory_budget_bytes": 2**30,
        "memory_budget_configured": True,
        "example_count": 100,
        "checked_example_count": 100,
        "file_count": 1,
        "file_bytes": 1000,
        "compression": "GZIP",
        "tuning_time_seconds": 1.0,
    }
    return TuningRecord(chosen=chosen, **{**usual, **fields})


def profile_record(step_peak_bytes):
    """Returns the record of a profile whose plain step had that peak."""
    return ProfileRecord(
        module_batch_size=64,
        device="CPU:0",
        replica_count=1,
        keras="tf_keras",
        state=StateSizes(weights_bytes=40, optimizer_state_bytes=80, gradients_bytes=40),
        steps=(
            StepMemory(
                plan="plain", batch_size=64, input_batch_bytes=8, peak_bytes=step_peak_bytes
            ),
            StepMemory(plan="xla", batch_size=64, input_batch_bytes=8, reason="not compiled"),
        ),
        memory_limit_bytes=10**9,
        limit_source="host",
    )
