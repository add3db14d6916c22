"""Mixed precision by one setting, on an unmodified module."""

import importlib

import pytest
import tensorflow as tf
import training_cases

pytestmark = pytest.mark.each_choice


@pytest.fixture
def trainer(tmp_path):
    return training_cases.Trainer(tmp_path)


def policies():
    return [
        importlib.import_module(f"{package}.mixed_precision").global_policy().name
        for package in ("keras", "tf_keras")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("line", ["keras", "tf_keras"])
@pytest.mark.parametrize("name", ["mixed_bfloat16", "mixed_float16"])
def test_the_model_computes_in_it_and_keeps_its_weights(trainer, line, name):
    trainer.run(
        module={"line": line}, precision=name, trial_budget_seconds=20, steps_per_call=(10,)
    )
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
    assert policies() == ["float32", "float32"]  # as it was


SLOW = """
import time

class Slow(keras.layers.Layer):
    def call(self, x):
        if self.compute_dtype == "float32":
            tf.numpy_function(lambda value: time.sleep(0.01) or value, [x], x.dtype)
        return x
"""


@pytest.mark.slow
@pytest.mark.parametrize("line", ["keras", "tf_keras"])
def test_trials_choose_it_and_the_training_keeps_to_it(trainer, line, monkeypatch):
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")  # which would be tried first
    trainer.run(
        module={"line": line, "beginning": SLOW, "layer": "Slow()"},
        precision="auto",
        planned_runs=10**6,
        trial_budget_seconds=60,
        steps_per_call=(5,),
        loss_tolerance=0.1,
    )
    record = trainer.record
    assert record.plan.precision == "mixed_bfloat16", record.plan_reason
    assert record.environment["precision"] == "mixed_bfloat16"
    assert {trial.plan.precision for trial in record.trials} == {None, "mixed_bfloat16"}
    assert policies() == ["float32", "float32"]
