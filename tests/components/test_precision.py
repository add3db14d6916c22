"""Mixed precision by one setting, on an unmodified module; `auto` by `comparisons`."""

import importlib
import pathlib

import pytest
import tensorflow as tf
import training_cases

from tfx_perf.components import types
from tfx_perf.components.optimized_trainer import comparisons
from tfx_perf.components.training_job import TrainingJob
from tfx_perf.core import errors
from tfx_perf.training.speedups import precision

pytestmark = pytest.mark.each_choice


def policies():
    return [
        importlib.import_module(f"{package}.mixed_precision").global_policy().name
        for package in ("keras", "tf_keras")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("line", ["keras", "tf_keras"])
@pytest.mark.parametrize("name", ["mixed_bfloat16", "mixed_float16"])
def test_the_model_computes_in_it_and_keeps_its_weights(trainer, line, name):
    trainer.run(module={"line": line}, precision=name, tuning_seconds=20, steps_per_execution=(10,))
    record = trainer.record
    assert record.environment["precision"] == name
    assert {trial.status for trial in record.trials} & {"chosen", "slower"}
    assert record.losses["loss"][-1] < 2.0
    narrow = name.removeprefix("mixed_")
    assert any(f"outputs are {narrow}" in note for note in record.notes)
    saved = next(trainer.folder.rglob("saved_model.pb")).parent / "variables" / "variables"
    dtypes = tf.train.load_checkpoint(str(saved)).get_variable_to_dtype_map().values()
    assert tf.float32 in dtypes
    assert not {tf.bfloat16, tf.float16} & set(dtypes)
    assert policies() == ["float32", "float32"]  # restored


SLOW = """
import time

class Slow(keras.layers.Layer):
    def call(self, x):
        if self.compute_dtype == "float32":
            tf.numpy_function(lambda value: time.sleep(0.01) or value, [x], x.dtype)
        return x
"""


TRIES = {
    "precision": "auto", "expected_runs": 10**6, "tuning_seconds": 60,
    "steps_per_execution": (5,), "loss_tolerance": 0.1,
}  # fmt: skip
# For workers of this machine.
TEMPLATE = training_cases.MODULE.replace("MirroredStrategy()", "get_strategy()")
AMONG_WORKERS = {"beginning": SLOW, "layer": "Slow()", "template": TEMPLATE}
TRY = {**TRIES, "distribution": {"workers": 2}, "tuning_seconds": 200}


def check_chosen(record):
    """Checks that the precision was chosen in turns, and that the training uses it."""
    assert record.plan.precision == "mixed_bfloat16", record.plan_reason
    assert record.environment["precision"] == "mixed_bfloat16"
    without, tried, *others = record.trials
    assert (without.plan.precision, without.status) == (None, "reference")
    assert tried.plan.is_plain_fit and tried.speedup.low > 1
    assert {each.plan.precision for each in others} == {"mixed_bfloat16"}
    assert record.is_settled


def run_again(trainer, monkeypatch, **given):
    """Runs with the results of the previous run, which must not be measured again."""
    monkeypatch.setattr(comparisons, "compare", None)
    inputs = {"previous_metrics": [trainer.perf_metrics]}
    trainer.perf_metrics = trainer.artifact(types.PerfMetrics, "second_metrics")
    trainer.run(inputs=inputs, **given)


@pytest.mark.slow
@pytest.mark.parametrize("line", ["keras", "tf_keras"])
def test_it_is_chosen_in_turns_and_the_training_keeps_to_it(trainer, line):
    trainer.run(module={"line": line, "beginning": SLOW, "layer": "Slow()"}, **TRIES)
    check_chosen(trainer.record)
    assert policies() == ["float32", "float32"]


@pytest.mark.slow
@pytest.mark.parametrize("line", ["keras", "tf_keras"])
def test_workers_try_it_in_turns_and_the_next_run_knows(trainer, line, monkeypatch, tmp_path):
    given = {
        "module": {"line": line, **AMONG_WORKERS}, **TRY,
        "checkpoint_folder": str(tmp_path / "checkpoints"),  # without it no plans are tried
    }  # fmt: skip
    trainer.run(**given)
    record, before = trainer.record, trainer.perf_metrics
    check_chosen(record)
    assert record.worker_count == 2
    assert not record.idle_settings
    assert record.trial_time_seconds < record.fit_time_seconds
    folder = pathlib.Path(before.uri)
    assert "mixed_bfloat16" in before.get_custom_property("plan")
    assert "Keras fit, mixed_bfloat16" in (folder / "report.html").read_text()
    assert TrainingJob.read(folder / "job.json").precision == "mixed_bfloat16"
    logs = {path.name for path in folder.glob("*.log")}
    assert {"own-precision-worker-0.log", "mixed-bfloat16-worker-1.log"} <= logs
    run_again(trainer, monkeypatch, **given)
    again = trainer.record
    assert again.plan == record.plan
    assert again.environment["precision"] == "mixed_bfloat16"
    assert again.reused_from == before.uri


@pytest.mark.slow
def test_workers_keep_to_it_after_a_kill(trainer, monkeypatch, tmp_path):
    given = {**AMONG_WORKERS, "train": training_cases.killed_once(tmp_path / "flag")}
    settings = {
        **TRY, "distribution": {"workers": 2, "restarts": 0}, "checkpoint_every_steps": 10,
        "checkpoint_folder": str(tmp_path / "checkpoints"),
    }  # fmt: skip
    with pytest.raises(errors.MeasurementError, match="SIGKILL"):
        trainer.run(module=given, **settings)
    monkeypatch.setattr(comparisons, "compare", None)
    trainer.run(module=given, **settings)
    record = trainer.record
    assert record.resumed_step >= 40
    assert record.plan.precision == record.environment["precision"] == "mixed_bfloat16"
    assert not (tmp_path / "checkpoints").exists()


REFUSES = """
class Refuses(keras.layers.Layer):
    def call(self, x):
        if self.compute_dtype == "bfloat16":
            raise ValueError("not made for it")
        return x
"""


@pytest.mark.slow
def test_workers_whose_code_is_not_made_for_it_train_as_it_is_and_try_it_once(trainer, monkeypatch):
    given = {**AMONG_WORKERS, "beginning": REFUSES, "layer": "Refuses()"}
    trainer.run(module=given, **TRY)
    record = trainer.record
    assert record.environment["precision"] == "float32"
    (failed,) = [each for each in record.trials if each.plan.precision]
    assert (failed.status, failed.plan.precision) == ("failed", "mixed_bfloat16")
    assert "not made for it" in failed.reason
    assert not failed.may_pass
    assert not record.is_settled  # the plan has no folder in which it could be found
    run_again(trainer, monkeypatch, module=given, **TRY)
    assert failed in trainer.record.trials


def test_float16_is_not_tried_on_a_processor():
    assert precision.candidates() == ("mixed_bfloat16",)
    assert precision.fixed("auto") is None
    assert precision.fixed("mixed_bfloat16") == "mixed_bfloat16"
