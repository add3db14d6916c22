"""The user's Python control flow is still converted; libraries are not."""

import sys
import types

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python.autograph.core import config

from tfx_perf.tf_internals import autograph


class Doubling(tf_keras.layers.Layer):
    def call(self, inputs):
        if tf.reduce_sum(inputs) > 0:
            return 2.0 * inputs
        return inputs


class Model(tf_keras.Model):
    def __init__(self):
        super().__init__()
        self.doubling = Doubling()
        self.dense = tf_keras.layers.Dense(1)

    def call(self, inputs):
        return self.dense(self.doubling(inputs))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x) - y) ** 2)
            if loss > 1000.0:
                loss = loss / 1000.0
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"loss": loss}


def test_user_code_is_converted_and_the_rules_are_put_back():
    rules = config.CONVERSION_RULES
    model = Model()
    model.compile(optimizer="sgd")
    with autograph.libraries_unconverted():
        history = model.fit(tf.ones((4, 2)), tf.fill((4, 1), 100.0), verbose=0)
    assert 1 < history.history["loss"][0] < 1000
    assert config.CONVERSION_RULES is rules


class Growing(tf_keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        if step > 0:
            return 0.1
        return 0.01


def branching(x):
    if tf.reduce_sum(x) > 1e9:
        return 0.0 * x
    return x


def trained(*, activation):
    model = tf_keras.Sequential([tf_keras.layers.Dense(3, activation)])
    model.compile(optimizer=tf_keras.optimizers.SGD(Growing()), loss="mse")
    return model.fit(tf.ones((4, 2)), tf.ones((4, 1)), verbose=0).history["loss"][0]


def applied(*, activation):
    layer = tf_keras.layers.Dense(3, activation)

    @tf.function
    def apply(x):
        return tf.reduce_sum(layer(x))

    return float(apply(tf.ones((4, 2))))


def test_schedules_of_learning_rates_are_converted():
    with autograph.libraries_unconverted():
        assert trained(activation=None) >= 0.0


def kind(module, *bases):
    return type("Kind", bases, {"__module__": module})


@pytest.mark.parametrize(
    ("module", "is_converted"),
    [
        ("tf_keras.src.optimizers.adam", False),
        ("my_project", True),
        ("tf_keras_of_mine.adam", True),
        ("tfx_perf.x", False),
    ],
)
def test_optimizers_are_converted_for_those_of_users(module, is_converted, monkeypatch):
    base, legacy, schedule = (kind("tf_keras.src.optimizers.base") for _ in range(3))
    users = kind(module, kind("tf_keras.src.optimizers.sgd", legacy))
    optimizers = types.SimpleNamespace(
        Optimizer=base,
        legacy=types.SimpleNamespace(Optimizer=legacy),
        schedules=types.SimpleNamespace(LearningRateSchedule=schedule),
    )
    monkeypatch.setitem(sys.modules, "tf_keras", types.SimpleNamespace(optimizers=optimizers))
    with autograph.libraries_unconverted():
        rules = config.CONVERSION_RULES
        adam = types.SimpleNamespace(__name__="tf_keras.src.optimizers.adam")
        actions = [rule.get_action(adam) for rule in rules]
    first = next(action for action in actions if action != config.Action.NONE)
    assert users and (first == config.Action.CONVERT) is is_converted


def test_code_that_needs_converted_libraries_is_run_again_with_conversion():
    try:
        applied(activation=branching)
    except tf.errors.OperatorNotAllowedInGraphError:
        pytest.skip("Keras fit does not convert it either, as in TensorFlow 2.21")
    runs = []

    @autograph.sparing_libraries
    def apply(*, activation):
        runs.append(len(config.CONVERSION_RULES))
        return applied(activation=activation)

    assert np.isfinite(apply(activation=None))
    assert len(runs) == 1
    assert np.isfinite(apply(activation=branching))
    assert runs[0] == runs[1] > runs[2] == len(config.CONVERSION_RULES)


def over_dataset(x):
    for number in tf.data.Dataset.range(2):
        x += tf.cast(number, x.dtype)
    return x


def test_a_loop_over_a_dataset_that_is_not_converted_ends(monkeypatch):
    monkeypatch.setattr(autograph, "_MOST_BATCHES", 20)  # a trace takes some milliseconds for each
    with pytest.raises(autograph.NeedsConversionError), autograph.libraries_unconverted():
        trained(activation=over_dataset)
