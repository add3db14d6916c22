"""Small models with data, for either Keras line, and functions that compare their trainings.

Models of more kinds are in `numeric_models`.
"""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.config import PerfConfig
from tfx_perf.core import interception
from tfx_perf.core.interception import FitCall
from tfx_perf.training import model_flops
from tfx_perf.training.keras_api import either_keras
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.tuning.choice import PlanChoice

BATCHES, BATCH_SIZE = 10, 8


def features(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(BATCHES * BATCH_SIZE, *shape)).astype("float32")


def batched(*tensors: Any) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(tensors).batch(BATCH_SIZE)


def regression() -> tf.data.Dataset:
    return batched(features(4), features(1, seed=1))


def dense(keras: Any) -> Any:
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((4,)), layers.Dense(8, activation="relu"), layers.Dense(1)]
    )
    model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    return model


def linear(keras: Any, kind: Any = None) -> Any:
    """Returns a model of one layer, optionally of the test's own class."""
    inputs = keras.Input((4,))
    model = (kind or keras.Model)(inputs, keras.layers.Dense(1)(inputs))
    model.compile(optimizer="sgd", loss="mse")
    return model


def subclass(keras: Any) -> Any:
    class Plain(keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden = keras.layers.Dense(8, activation="tanh")
            self.last = keras.layers.Dense(1)

        def call(self, inputs):  # without the argument `training`
            return self.last(self.hidden(inputs))

    model = Plain()
    model.compile(optimizer="adam", loss="mse")
    return model


def descend(model: Any, data: Any) -> tf.Tensor:
    """Runs a step as a user's `train_step` may; returns the mean absolute error, scalar."""
    x, y = data
    with tf.GradientTape() as tape:
        error = tf.reduce_mean(tf.abs(model(x, training=True) - y))
    gradients = tape.gradient(error, model.trainable_variables)
    model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    return error


def custom_train_step(keras: Any) -> Any:
    class Custom(keras.Model):
        def train_step(self, data):
            return {"loss": descend(self, data), "share": tf.reduce_mean(data[1])}

    return linear(keras, Custom)


def captured(model: Any, data: Any, **arguments: Any) -> FitCall:
    """Returns the call of `fit`, not run, with the model's variables created."""
    arguments = {"epochs": 2, "verbose": 0, **arguments}
    call = interception.capture_fit(lambda: model.fit(data, **arguments))
    batches = data
    if not isinstance(data, tf.data.Dataset):
        batches = tf.data.Dataset.from_tensor_slices((data, arguments["y"])).batch(BATCH_SIZE)
    same = {**call.arguments, "x": batches, "y": None}
    FitLoop(dataclasses.replace(call, arguments=same)).prepare()
    model.train_function = model.test_function = None
    return call


def settings_that_try(
    *, xla: bool = False, expected_runs: int = 10**6, **training: Any
) -> PerfConfig:
    """Returns settings of trials, with more time for them than even a busy machine needs."""
    training = {"tuning_seconds": 200, "steps_per_execution": [10], **training}
    schedule = {"expected_runs": expected_runs}
    return PerfConfig.from_dict(
        {"training": training, "compilation": {"enabled": xla}, "schedule": schedule}
    )


def session_with(plan: TrainingPlan, **settings: Any) -> TrainingSession:
    """Returns a session that trains with a plan and tries none; settings are by section.

    It does so even with callbacks that act on every batch, by which tests end it.
    """
    session = TrainingSession(PerfConfig.from_dict(settings))
    session._choose = lambda call, loop: PlanChoice(plan=plan, plan_reason="given")
    session._resumed_choice = lambda plan, call, loop, step: PlanChoice(
        plan=plan, plan_reason=f"it resumed an interrupted training at step {step}"
    )
    return session


def without_autotune(data: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the same data without autotune's thread, which can delay the end of every `fit`."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return data.with_options(options)


def shared_by_rows(data: tf.data.Dataset) -> tf.data.Dataset:
    """Returns data of which each of several workers gets its own part of the rows."""
    options = tf.data.Options()
    by_rows = tf.data.experimental.AutoShardPolicy.DATA
    options.experimental_distribute.auto_shard_policy = by_rows
    return data.with_options(options)


def count_no_flops() -> None:
    """Skips counting the operations of a step in this process, which takes a second."""
    flops = model_flops.Flops(None, None, None)
    model_flops.count_flops = lambda model, batch: flops


class Snapshot:
    """Every variable that training changes, to be restored and compared."""

    def __init__(self, model: Any) -> None:
        self._variables = either_keras.api_of(model).state(model)
        self.values = [np.array(variable.numpy()) for variable in self._variables]

    def restore(self) -> None:
        for variable, value in zip(self._variables, self.values, strict=True):
            variable.assign(value)


def plain_fit(call: FitCall) -> tuple[Any, Snapshot]:
    """Trains as Keras does, then restores the start; returns the History and a final Snapshot."""
    before = Snapshot(call.model)
    history = call.proceed()
    trained = Snapshot(call.model)
    before.restore()
    call.model.train_function = call.model.test_function = None
    return history, trained


def compare(call: FitCall, plans: Any, *, step_count: int | None = None) -> FitLoop:
    """Compares the result of every plan with Keras' `fit`, from the same weights; returns the loop.

    Args:
        call: the `fit`.
        plans: to train with, one after the other.
        step_count: of each; None if it is not asked for.
    """
    before = Snapshot(call.model)
    expected, trained = plain_fit(call)
    assert any(not np.array_equal(a, b) for a, b in zip(before.values, trained.values, strict=True))
    loop = FitLoop(call)
    for plan in plans:
        before.restore()
        history, timer = loop.fit(plan)
        rtol = 1e-4 if plan.uses_xla else 1e-5
        assert_same_history(history, expected, rtol=rtol)
        assert_same(Snapshot(call.model), trained, rtol=rtol)
        if step_count is not None:
            steps = timer.step_count, int(call.model.optimizer.iterations.numpy())
            assert steps == (step_count, step_count), plan
    return loop


def assert_same(found: Snapshot, expected: Snapshot, *, rtol: float = 1e-5) -> None:
    for one, other in zip(found.values, expected.values, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-6)


def assert_same_history(found: Any, expected: Any, *, rtol: float = 1e-5) -> None:
    assert found.epoch == expected.epoch
    assert found.history.keys() == expected.history.keys()
    for key, values in expected.history.items():
        np.testing.assert_allclose(found.history[key], values, rtol=rtol, atol=1e-6, err_msg=key)
