"""Keras' `fit` in a session draws the same random numbers as alone, whatever was tried before.

Also where layers and optimizer have `traced_numbers`.
"""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from model_cases import without_autotune
from tensorflow.python.autograph.impl import api
from tensorflow.python.autograph.pyct import cache, transpiler

from tfx_perf.config import PerfConfig
from tfx_perf.core.interception import intercepting_fit
from tfx_perf.training.session import TrainingSession

pytestmark = [pytest.mark.each_choice, pytest.mark.usefixtures("no_flops")]

STEPS = 6


def noise(keras, **arguments):
    """Returns a layer that draws with an operation of TensorFlow."""

    class Noise(keras.layers.Layer):
        def call(self, inputs):
            return inputs + tf.random.uniform(tf.shape(inputs), **arguments)

    return Noise()


def built_at_random(keras):
    """Returns a layer whose weight depends on TensorFlow's seed."""

    class Built(keras.layers.Layer):
        def build(self, shape):
            self.factor = self.add_weight(
                name="factor",
                shape=(1,),
                initializer=lambda shape, dtype=None: tf.random.normal(shape, dtype=dtype),
            )

        def call(self, inputs):
            return inputs * tf.convert_to_tensor(self.factor)

    return Built()


def branching(keras):
    """Returns a layer that AutoGraph has to convert, and that draws from a seed."""

    class Branching(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.dropout = keras.layers.Dropout(0.4, seed=7)

        def call(self, inputs, training=None):
            dropped = self.dropout(inputs, training=training)
            if tf.reduce_sum(inputs) > 1e9:
                return inputs
            return dropped

    return Branching()


LAYERS = {
    "dropout": lambda keras: keras.layers.Dropout(0.4),
    "seeded dropout": lambda keras: keras.layers.Dropout(0.4, seed=7),
    "Gaussian noise": lambda keras: keras.layers.GaussianNoise(0.3),
    "operation": noise,
    "seeded operation": lambda keras: noise(keras, seed=11),
    "initializer": built_at_random,
}


def trained(keras, layer, *, is_late, session=None):
    """Returns the History of a training and everything that depends on seeds."""
    keras.utils.set_random_seed(3)
    layers = keras.layers
    inputs = [] if is_late else [layers.Input((4,))]
    make = branching if layer == "branching" else LAYERS[layer]
    model = keras.Sequential([*inputs, layers.Dense(8), make(keras), layers.Dense(1)])
    # The optimizer of tf_keras counts how often it is traced.
    model.compile(optimizer=keras.optimizers.Nadam(0.01), loss="mse")
    numbers = np.random.default_rng(0).normal(size=(STEPS * 8, 5)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((numbers[:, :4], numbers[:, 4:]))
    data = without_autotune(data.shuffle(STEPS * 8).batch(8))

    def fit():
        # The second `fit` reuses the trace and continues the random states of the first.
        return [model.fit(data, epochs=2, verbose=0).history for _ in range(2)]

    if session is None:
        history = fit()
    else:
        with intercepting_fit(session.fit):
            history = fit()
    weights = [weight.tolist() for weight in model.get_weights()]
    return history, weights, tf.random.uniform([3]).numpy().tolist()


def check(keras, layer, *, is_late, folder):
    """Compares Keras' own `fit` with that of a session that chooses it."""
    expected = trained(keras, layer, is_late=is_late)
    folder = str(folder)
    session = TrainingSession(PerfConfig.from_dict({"training": {"checkpoint_folder": folder}}))
    found = trained(keras, layer, is_late=is_late, session=session)
    assert session.record.plan.is_plain_fit
    assert "too short" in session.record.plan_reason
    assert found == expected


@pytest.mark.parametrize("is_late", [False, True], ids=["built", "late"])
@pytest.mark.parametrize("layer", LAYERS)
def test_trials_that_choose_keras_fit_do_not_change_its_draws(keras, layer, is_late, tmp_path):
    check(keras, layer, is_late=is_late, folder=tmp_path)


@pytest.mark.parametrize("is_late", [False, True], ids=["built", "late"])
def test_a_step_that_autograph_must_convert_draws_the_same(is_late, tmp_path):
    check(tf_keras, "branching", is_late=is_late, folder=tmp_path)


def test_tf_keras_itself_is_not_converted(monkeypatch):
    model = tf_keras.Sequential([tf_keras.layers.Input((4,)), tf_keras.layers.Dense(1)])
    model.compile(tf_keras.optimizers.Adamax(), "mae", metrics=["accuracy"])
    data = tf.data.Dataset.from_tensors((tf.ones((8, 4)), tf.ones((8, 1))))
    converted = []

    def note(itself, function, context, of=transpiler.PyToPy.transform_function):
        converted.append(function.__qualname__)
        return of(itself, function, context)

    monkeypatch.setattr(transpiler.PyToPy, "transform_function", note)
    monkeypatch.setattr(api._TRANSPILER, "_cache", cache.CodeObjectCache())  # of earlier fits
    with intercepting_fit(TrainingSession(PerfConfig()).fit):
        model.fit(data, validation_data=data, verbose=0)
    assert len(set(converted)) < 5, converted
    model.compile(tf_keras.optimizers.Adamax(), "mae", metrics=["accuracy"])
    model.fit(data, validation_data=data, verbose=0)
    assert len(set(converted)) > 20  # when Keras' own `fit` is traced
