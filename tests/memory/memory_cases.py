"""Cases that run in separate processes, in which the allocator counts every tensor."""

import importlib

import tensorflow as tf

from tfx_perf.config import MemorySettings
from tfx_perf.core import interception
from tfx_perf.memory import footprint, profile

SIDE, CHANNELS = 32, 16


def _profile(model, dataset, **settings):
    call = interception.capture_fit(lambda: model.fit(dataset, epochs=3))
    return call, profile.completed(profile.profile(call, settings=MemorySettings(**settings)))


def convolutions(line):
    """Profiles at 32, 64 and 128; also measures 512, which the prediction has not seen."""
    keras = importlib.import_module(line)
    model = keras.Sequential(
        [
            keras.layers.Input((SIDE, SIDE, 3)),
            keras.layers.Conv2D(CHANNELS, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(CHANNELS, 3, padding="same", activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer="adam", loss="mse", jit_compile=True)
    examples = (tf.zeros((96, SIDE, SIDE, 3)), tf.zeros((96, 1)))
    dataset = tf.data.Dataset.from_tensor_slices(examples).batch(64)
    foreign = tf.zeros(2**24, tf.uint8) + tf.ones(1, tf.uint8)  # must not count
    call, record = _profile(model, dataset)
    call.model.jit_compile = False
    far = footprint.FootprintMeter(call, max_utilization=0.85, note=print).take(512)
    state = record.state
    resident = state.weights_bytes + state.optimizer_state_bytes + far.batch_bytes
    del foreign
    return {
        "record": record.model_dump(mode="json"),
        "far_peak_bytes": resident + max(far.rises_bytes),
    }


def strings():
    """Profiles a model that XLA cannot compile, because it reads strings."""
    import keras

    inputs = keras.Input((1,), dtype="string")
    ids = keras.layers.StringLookup(vocabulary=["a", "b"])(inputs)
    outputs = keras.layers.Dense(1)(keras.layers.Flatten()(keras.layers.Embedding(3, 4)(ids)))
    model = keras.Model(inputs, outputs)
    model.compile(optimizer="sgd", loss="mse")
    examples = (tf.constant([["a"], ["b"], ["c"], ["a"]]), tf.zeros((4, 1)))
    dataset = tf.data.Dataset.from_tensor_slices(examples).repeat().batch(4)
    _, record = _profile(model, dataset, batch_sizes=(8,))
    return record.model_dump(mode="json")
