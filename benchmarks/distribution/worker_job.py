"""One worker: trains in blocks with Keras' `fit` and with the plan, in turns."""

import importlib
import json
import sys
import time
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.config import PerfConfig
from tfx_perf.core import interception
from tfx_perf.distribute import as_one_device
from tfx_perf.training.keras_api import either_keras
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.step import evaluation

BATCH_SIZE = 40
"""Examples per step of each worker."""

_STEPS = 300
_ROWS = 4000


def taxi(keras: Any) -> Any:
    """Returns a model of the taxi template's size: 23 numbers, four hidden layers."""
    inputs = {f"feature_{index}": keras.Input((1,), name=f"feature_{index}") for index in range(23)}
    hidden = keras.layers.Concatenate()(list(inputs.values()))
    for units in (100, 70, 50, 25):
        hidden = keras.layers.Dense(units, "relu")(hidden)
    return keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(hidden))


def dense(keras: Any) -> Any:
    """Returns a model of 4 million weights, whose gradients have to be reduced."""
    inputs = {"feature_0": keras.Input((1,), name="feature_0")}
    hidden = keras.layers.Dense(1024, "relu")(inputs["feature_0"])
    for _ in range(4):
        hidden = keras.layers.Dense(1024, "relu")(hidden)
    return keras.Model(inputs, keras.layers.Dense(1)(hidden))


MODELS = {"taxi": (taxi, _STEPS), "dense": (dense, _STEPS // 10)}


def main(name: str, package: str, rounds: int) -> None:
    """Prints the seconds per step of each round, `{"plain": [...], "planned": [...]}`.

    Args:
        name: a key of `MODELS`.
        package: the Keras package.
        rounds: blocks of each of the two.
    """
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    keras = importlib.import_module(package)
    build, steps = MODELS[name]
    with strategy.scope():
        model = build(keras)
        model.compile("adam", "mse", metrics=["mae"])
    rng = np.random.default_rng(0)
    features = {key: rng.random((_ROWS, 1), "float32") for key in model.input}
    data = tf.data.Dataset.from_tensor_slices((features, rng.random((_ROWS, 1), "float32")))
    data = data.batch(strategy.num_replicas_in_sync * BATCH_SIZE, drop_remainder=True).repeat()
    keras_api = either_keras.api_of(model)
    session = TrainingSession(PerfConfig())

    def step_seconds() -> float:
        ends = []
        callback = keras_api.callback(on_epoch_end=lambda *_: ends.append(time.perf_counter()))
        model.fit(data, steps_per_epoch=steps, epochs=2, verbose=0, callbacks=[callback])
        return (ends[1] - ends[0]) / steps  # the first epoch traces

    found: dict[str, list[float]] = {"plain": [], "planned": []}
    for _ in range(rounds):
        # Without these contexts, Keras 3 cannot train on several workers.
        with as_one_device.over_replicas(model, keras_api), evaluation.as_one_device():
            found["plain"].append(step_seconds())
        with interception.intercepting_fit(session.fit):
            found["planned"].append(step_seconds())
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
