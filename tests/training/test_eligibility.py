"""The trainings that Keras' `fit` keeps, and which it runs unchanged."""

import dataclasses

import model_cases
import pytest
import tensorflow as tf
from model_cases import Snapshot, assert_same, assert_same_history, captured, plain_fit

from tfx_perf.config import PerfConfig
from tfx_perf.training.loop.eligibility import obstacle, recovery_obstacle
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.session import TrainingSession

pytestmark = [pytest.mark.one_case, pytest.mark.usefixtures("no_flops")]


def arrays(keras):
    x, y = model_cases.features(4), model_cases.features(1, seed=1)
    return captured(model_cases.dense(keras), x, y=y, batch_size=8, shuffle=False)


def eagerly(keras):
    model = model_cases.dense(keras)
    model.compile(optimizer="sgd", loss="mse", run_eagerly=True)
    return captured(model, model_cases.regression())


def own_callback(keras):
    mine = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None)
    return captured(model_cases.dense(keras), model_cases.regression(), callbacks=[mine])


def own_train_function(keras):
    class Mine(keras.Model):
        def make_train_function(self, force=False):
            return super().make_train_function(force)

    model = model_cases.linear(keras, Mine)
    return captured(model, model_cases.regression())


def central_storage(keras):
    with tf.distribute.experimental.CentralStorageStrategy(["CPU:0"]).scope():
        model = model_cases.dense(keras)
    return captured(model, model_cases.regression())


def frequent_checkpoints(keras):
    saver = keras.callbacks.ModelCheckpoint("/tmp/unused.weights.h5", save_freq=10**6)
    return captured(model_cases.dense(keras), model_cases.regression(), callbacks=[saver])


OBSTACLES = {
    arrays: "x is a ndarray",
    eagerly: "runs eagerly",
    own_callback: "the callback LambdaCallback acts on every batch",
    own_train_function: "own make_train_function",
    central_storage: "CentralStorageStrategy",
    frequent_checkpoints: "ModelCheckpoint saves after a number of batches",
}


@pytest.mark.parametrize("make", OBSTACLES)
def test_an_obstacle_is_named_and_plain_fit_trains(keras, make):
    try:
        call = make(keras)
    except (NotImplementedError, ValueError) as error:
        assert make is central_storage  # noqa: PT017
        pytest.skip(f"this Keras line does not train with it: {error}")
    expected, trained = plain_fit(call)
    session = TrainingSession(PerfConfig())
    assert_same_history(session.fit(call), expected)
    assert_same(Snapshot(call.model), trained)
    assert OBSTACLES[make] in session.record.plan_reason
    assert session.record.plan.is_plain_fit
    assert session.record.trials == ()
    assert session.record.train_step_count == 20
    assert session.record.global_batch_size == model_cases.BATCH_SIZE


def test_the_advice_for_an_unknown_length_makes_every_epoch_eligible(keras):
    model = model_cases.dense(keras)
    model.compile("sgd", "mse", steps_per_execution=2)
    call = captured(model, model_cases.regression().filter(lambda x, y: True))
    told, data, steps = obstacle(call, FitLoop(call)), call.arguments["x"], 10
    asserted = data.apply(tf.data.experimental.assert_cardinality(steps))
    for advice, followed in {
        "assert_cardinality(steps)": {"x": asserted},
        "steps_per_epoch and data.repeat()": {"x": data.repeat(), "steps_per_epoch": steps},
    }.items():
        assert advice in told
        arguments = {**call.arguments, **followed, "epochs": 2}
        call = dataclasses.replace(call, arguments=arguments)
        assert obstacle(call, FitLoop(call)) is None
        before = int(call.model.optimizer.iterations)
        call.proceed()
        assert int(call.model.optimizer.iterations) - before == 2 * steps


@pytest.mark.parametrize(
    ("steps_per_epoch", "epochs", "initial_epoch", "run_out"),
    [
        (4, 3, 0, True),
        (4, 2, 0, False),
        (4, 3, 1, False),
        (20, 1, 0, True),
        (None, 3, 0, False),
        (5, 9, 0, None),
    ],
)
def test_data_that_end_before_the_training(keras, steps_per_epoch, epochs, initial_epoch, run_out):
    call = captured(
        model_cases.dense(keras),
        model_cases.regression(),
        steps_per_epoch=steps_per_epoch,
        epochs=epochs,
        initial_epoch=initial_epoch,
    )
    loop = FitLoop(call)
    if run_out is None:  # at the end of an epoch, where only Keras 3 starts them again
        run_out = not loop.keras_api.overcounts
    expected = "the data end before the training does" if run_out else None
    assert obstacle(call, loop) == expected


def test_obstacles_are_sought_inside_the_strategys_scope_too(keras):
    strategy = tf.distribute.experimental.CentralStorageStrategy(["CPU:0"])
    with strategy.scope():
        call = model_cases.captured(model_cases.dense(keras), model_cases.regression())
        loop = FitLoop(call)
        assert "CentralStorageStrategy" in obstacle(call, loop)
        assert "CentralStorageStrategy" in recovery_obstacle(call, loop)
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        call = model_cases.captured(model_cases.dense(keras), model_cases.regression())
        assert obstacle(call, FitLoop(call)) is None
        assert recovery_obstacle(call, FitLoop(call)) is None


@pytest.mark.slow
def test_keras_3_on_another_backend_keeps_its_own_fit(monkeypatch):
    import keras
    import tf_keras

    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    call = captured(model_cases.dense(keras), model_cases.regression())
    assert "trains with jax" in recovery_obstacle(call, FitLoop(call))
    session = TrainingSession(PerfConfig())
    assert session.fit(call).epoch == [0, 1]
    assert "Keras trains with jax, not with TensorFlow" in session.record.plan_reason
    call = captured(model_cases.dense(tf_keras), model_cases.regression())
    assert obstacle(call, FitLoop(call)) is None
