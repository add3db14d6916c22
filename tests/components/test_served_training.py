"""OptimizedTrainer hands its training to a coordinator: real executor, real processes.

It is started by `local_run`, and its `strategy` is the one of `parameter_servers`.
"""

import pathlib

import pytest
import tensorflow as tf
import training_cases

from tfx_perf import errors
from tfx_perf.training.plan import TrainingPlan

pytestmark = pytest.mark.one_case

SERVED = {"workers": 2, "parameter_servers": 1}
_OWN = "ParameterServerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())"
# Without the conversion of tf_keras itself, which takes half a minute.
MODULE = {
    "line": "tf_keras",
    "beginning": "from tfx_perf.tf_internals import autograph",
    "train": f"with autograph.libraries_unconverted():\n        {training_cases.FIT}",
}


def module(strategy, **changes):
    template = training_cases.MODULE.replace("MirroredStrategy()", strategy)
    return {**MODULE, "template": template, **changes}


@pytest.fixture
def trainer(tmp_path):
    (tmp_path / "data").mkdir()
    return training_cases.Trainer(tmp_path / "data")


@pytest.mark.parametrize("strategy", ["get_strategy()", _OWN], ids=["none", "own"])
def test_a_module_trains_beside_parameter_servers(strategy, trainer):
    trainer.run(module=module(strategy), distribution=SERVED)
    record = trainer.record
    assert record.environment["strategy"] == "ParameterServerStrategy"
    assert record.environment["parameter_server_count"] == "1"
    assert (record.worker_count, record.global_batch_size, record.train_step_count) == (2, 10, 120)
    assert record.plan == TrainingPlan(steps_per_call=10)
    assert record.figures()["examples_per_second"]
    assert record.figures()["peak_memory_bytes"] is None
    assert set(record.losses) == {"loss", "val_loss"}
    written = {path.name for path in pathlib.Path(trainer.perf_metrics.uri).iterdir()}
    assert written == {
        "metrics.json", "report.html", "job.json", "coordinator.log", "worker-0.log",
        "worker-1.log", "server-0.log",
    }  # fmt: skip
    saved = tf.saved_model.load(str(pathlib.Path(trainer.model.uri, "Format-Serving")))
    assert saved.signatures


@pytest.mark.slow
def test_a_model_of_keras_3_is_refused(trainer):
    with pytest.raises(errors.UserError, match="Expected a model of tf_keras under"):
        trainer.run(module=module("get_strategy()", line="keras"), distribution=SERVED)
