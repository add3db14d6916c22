"""Trains over two virtual CPUs, which must be made before TensorFlow starts; run as a script."""

import importlib
import sys

import model_cases
import tensorflow as tf
from model_cases import Snapshot, assert_same, assert_same_history, captured

from tfx_perf.config import PerfConfig
from tfx_perf.training.loop import Loop
from tfx_perf.training.optimizations.plan import TrainingPlan
from tfx_perf.training.session import TrainingSession


def main(package: str) -> None:
    keras = importlib.import_module(package)
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    # Its logs are its own, so that the last call's must be those of all replicas.
    case = model_cases.CASES["custom_train_step"]
    with strategy.scope():
        model = case.build(keras)
    assert strategy.num_replicas_in_sync == 2
    call = captured(model, case.data(), validation_data=case.data().take(4))
    before = Snapshot(model)
    expected = call.proceed()
    trained = Snapshot(model)
    before.restore()
    history, timer = Loop(call).fit(TrainingPlan(steps_per_call=7))
    assert timer.step_count == 20
    assert_same(Snapshot(model), trained)
    assert_same_history(history, expected)
    settings = PerfConfig.from_dict(
        {"training": {"trial_budget_seconds": 60}, "schedule": {"planned_runs": 10**6}}
    )
    session = TrainingSession(settings)
    session.fit(captured(model, case.data().repeat(), steps_per_epoch=50, epochs=1))
    assert session.record.train_step_count == 50
    assert {trial.status for trial in session.record.trials} & {"chosen", "slower"}
    assert "2 replicas" in session.record.notes[0]


main(sys.argv[1])
