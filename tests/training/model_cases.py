"""Small models of many kinds, each with its data, for either Keras line."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.config import PerfConfig
from tfx_perf.core import interception
from tfx_perf.core.interception import FitCall
from tfx_perf.training.keras_api import either_keras
from tfx_perf.training.loop import Loop
from tfx_perf.training.optimizations.plan import TrainingPlan
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.trials.choice import PlanChoice

BATCHES, BATCH_SIZE = 10, 8


@dataclasses.dataclass(frozen=True)
class Case:
    """A kind of model.

    Attributes:
        build: Keras module to compiled model.
        data: makes the training data.
        arguments: of `fit`.
        xla: whether to try XLA too.
    """

    build: Callable[[Any], Any]
    data: Callable[[], tf.data.Dataset]
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    xla: bool = True


def features(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(BATCHES * BATCH_SIZE, *shape)).astype("float32")


def labels(classes: int, *, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, classes, size=(BATCHES * BATCH_SIZE, 1))


def batched(*tensors: Any) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(tensors).batch(BATCH_SIZE)


def regression() -> tf.data.Dataset:
    return batched(features(4), features(1, seed=1))


def classification() -> tf.data.Dataset:
    return batched(features(4), labels(3))


def dense(keras: Any) -> Any:
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((4,)), layers.Dense(8, activation="relu"), layers.Dense(1)]
    )
    model.compile(optimizer="adam", loss="mse", metrics=["mae"])
    return model


def several_outputs(keras: Any) -> Any:
    a, b = keras.Input((4,), name="a"), keras.Input((2,), name="b")
    joined = keras.layers.Concatenate()([a, b])
    hidden = keras.layers.Dense(8, activation="relu")(joined)
    outputs = {
        "value": keras.layers.Dense(1, name="value")(hidden),
        "kind": keras.layers.Dense(3, activation="softmax", name="kind")(hidden),
    }
    model = keras.Model({"a": a, "b": b}, outputs)
    model.compile(
        optimizer=keras.optimizers.SGD(0.05, momentum=0.9),
        loss={"value": "mse", "kind": "sparse_categorical_crossentropy"},
        loss_weights={"value": 0.3, "kind": 2.0},
        metrics={"value": ["mae"], "kind": ["accuracy"]},
    )
    return model


def several_outputs_data() -> tf.data.Dataset:
    inputs = {"a": features(4), "b": features(2, seed=2)}
    return batched(inputs, {"value": features(1, seed=1), "kind": labels(3)})


def convolutions(keras: Any) -> Any:
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((6, 6, 2)),
            layers.Conv2D(4, 3),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Flatten(),
            layers.Dense(3, activation="softmax"),
        ]
    )
    loss = "sparse_categorical_crossentropy"
    model.compile(optimizer="sgd", loss=loss, metrics=["accuracy"])
    return model


def extra_losses(keras: Any) -> Any:
    class Activity(keras.layers.Layer):
        def call(self, inputs):
            self.add_loss(1e-2 * tf.reduce_mean(tf.square(inputs)))
            return inputs

    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(8, kernel_regularizer=keras.regularizers.L2(1e-2))(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(Activity()(hidden)))
    model.compile(optimizer="rmsprop", loss="mse")
    return model


def embeddings(keras: Any) -> Any:
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((1,)), layers.Embedding(5, 4), layers.Flatten(), layers.Dense(1)]
    )
    model.compile(optimizer="adam", loss="mse")
    return model


def classes(keras: Any) -> Any:
    model = keras.Sequential(
        [keras.layers.Input((4,)), keras.layers.Dense(3, activation="softmax")]
    )
    loss = "sparse_categorical_crossentropy"
    model.compile(optimizer="sgd", loss=loss, weighted_metrics=["accuracy"])
    return model


def subclass(keras: Any) -> Any:
    class Plain(keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden = keras.layers.Dense(8, activation="tanh")
            self.last = keras.layers.Dense(1)

        def call(self, inputs):  # no argument `training`
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

    inputs = keras.Input((4,))
    model = Custom(inputs, keras.layers.Dense(1)(inputs))
    model.compile(optimizer="sgd", loss="mse")
    return model


def weighted() -> tf.data.Dataset:
    weights = np.random.default_rng(5).uniform(size=(BATCHES * BATCH_SIZE,)).astype("float32")
    return batched(features(4), labels(3), weights)


CASES = {
    "dense": Case(dense, regression),
    "several_outputs": Case(several_outputs, several_outputs_data),
    "convolutions": Case(convolutions, lambda: batched(features(6, 6, 2), labels(3))),
    "extra_losses": Case(extra_losses, regression),
    "embeddings": Case(embeddings, lambda: batched(labels(5, seed=3), features(1, seed=1))),
    "class_weight": Case(
        classes, classification, {"class_weight": {0: 0.2, 1: 3.0, 2: 1.0}}, xla=False
    ),
    "sample_weight": Case(classes, weighted, xla=False),
    "subclass": Case(subclass, regression),
    "custom_train_step": Case(custom_train_step, regression, xla=False),
}


def captured(model: Any, data: Any, **arguments: Any) -> FitCall:
    """Returns the call of `fit`, not carried out, with the model's variables created."""
    arguments = {"epochs": 2, "verbose": 0, **arguments}
    call = interception.capture_fit(lambda: model.fit(data, **arguments))
    batches = data
    if not isinstance(data, tf.data.Dataset):
        batches = tf.data.Dataset.from_tensor_slices((data, arguments["y"])).batch(BATCH_SIZE)
    same = {**call.arguments, "x": batches, "y": None}
    Loop(dataclasses.replace(call, arguments=same)).prepare()
    model.train_function = model.test_function = None
    return call


def session_with(plan: TrainingPlan, **settings: Any) -> TrainingSession:
    """Returns a session that trains with a plan and tries none; the settings are by section."""
    session = TrainingSession(PerfConfig.from_dict(settings))
    session._choose = lambda call, loop: PlanChoice(plan=plan, plan_reason="given")
    return session


def without_autotune(data: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the same data without autotune's thread, which can delay the end of every `fit`."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return data.with_options(options)


class Snapshot:
    """Every variable that training changes, to be put back and compared."""

    def __init__(self, model: Any) -> None:
        self._variables = either_keras.api_of(model).state(model)
        self.values = [np.array(variable.numpy()) for variable in self._variables]

    def restore(self) -> None:
        for variable, value in zip(self._variables, self.values, strict=True):
            variable.assign(value)


def plain_fit(call: FitCall) -> tuple[Any, Snapshot]:
    """Trains as Keras does and goes back; returns the History and what the training came to."""
    before = Snapshot(call.model)
    history = call.proceed()
    trained = Snapshot(call.model)
    before.restore()
    call.model.train_function = call.model.test_function = None
    return history, trained


def copy_weights(source: Snapshot, model: Any) -> None:
    """Gives a model of the same code the state of a snapshot."""
    state = either_keras.api_of(model).state(model)
    for variable, value in zip(state, source.values, strict=True):
        variable.assign(value)


def assert_same(found: Snapshot, expected: Snapshot, *, rtol: float = 1e-5) -> None:
    for one, other in zip(found.values, expected.values, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-6)


def assert_same_history(found: Any, expected: Any, *, rtol: float = 1e-5) -> None:
    assert found.epoch == expected.epoch
    assert found.history.keys() == expected.history.keys()
    for key, values in expected.history.items():
        np.testing.assert_allclose(found.history[key], values, rtol=rtol, atol=1e-6, err_msg=key)
