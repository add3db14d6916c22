"""Trains a deep model in a process of its own; run as a script, prints the allocator's peak.

Arguments: the Keras package and a plan as JSON. `TF_CPU_ALLOCATOR_USE_BFC=1` must be set.
"""

import importlib
import sys

import numpy as np
import tensorflow as tf
from model_cases import captured

from tfx_perf.training.keras_api.random_layers import SaveableRandomLayers
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.speedups.plan import TrainingPlan

ROWS, WIDTH, DEPTH, STEPS = 2048, 256, 16, 3


def build(keras):
    """Returns a model whose activations are large and whose weights are small."""
    keras.utils.set_random_seed(1)
    layers = keras.layers
    blocks = [
        layer
        for _ in range(DEPTH)
        for layer in (layers.Dense(WIDTH, activation="gelu"), layers.Dropout(0.2))
    ]
    model = keras.Sequential([layers.Input((32,)), *blocks, layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    return model


def main(package: str, plan: str) -> None:
    model = build(importlib.import_module(package))
    x = np.random.default_rng(0).normal(size=(ROWS, 32)).astype("float32")
    data = tf.data.Dataset.from_tensors((x, x[:, :1])).repeat()
    loop = FitLoop(captured(model, data, epochs=1, steps_per_epoch=STEPS))
    with SaveableRandomLayers(model).installed():
        loop.fit(TrainingPlan.model_validate_json(plan))
        before = tf.config.experimental.get_memory_info("CPU:0")["current"]
        tf.config.experimental.reset_memory_stats("CPU:0")
        _, timer = loop.fit(TrainingPlan.model_validate_json(plan))
    peak = tf.config.experimental.get_memory_info("CPU:0")["peak"] - before
    print(timer.steady_seconds(), file=sys.stderr)
    print(peak)


if __name__ == "__main__":
    main(*sys.argv[1:])
