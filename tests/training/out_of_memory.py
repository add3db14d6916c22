"""Trains in a process whose memory TensorFlow limits; run as a script, prints JSON.

Arguments: the Keras package, the steps per execution and a scenario.
"""

import contextlib
import importlib
import json
import sys

import numpy as np
import tensorflow as tf
from keras_api.replica_cases import strategy_of
from model_cases import captured

from tfx_perf.config import PerfConfig
from tfx_perf.core import errors
from tfx_perf.tf_internals import autograph
from tfx_perf.training.fit_recovery import Recovery
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.recovery import checkpoint_writer
from tfx_perf.training.recovery.checkpoint_writer import CheckpointSchedule
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan

ROWS, BATCHES = 2048, 12


def build(keras, *, width=2048):
    """Returns a model whose activations are large and whose weights are small."""
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((16,)),
            layers.Dense(width, activation="tanh"),
            layers.Lambda(lambda x: tf.sin(x) * 2.0),
            layers.Dense(1),
        ]
    )
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
    model.compile(optimizer, "mse", metrics=["mae", keras.metrics.AUC()])
    return model


def data(rows=ROWS):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows * BATCHES, 16)).astype("float32")
    y = (x[:, :1] > 0).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(rows)


def main(package: str, steps: int, scenario: str) -> None:
    keras = importlib.import_module(package)
    with strategy_of(2).scope() if scenario == "replicas" else contextlib.nullcontext():
        model = build(keras, width=1_000_000 if scenario == "one row" else 2048)
    call = captured(model, data(2 if scenario == "one row" else ROWS))
    plan = TrainingPlan(steps_per_execution=steps)
    settings = PerfConfig.from_dict({"training": {"checkpoint_every_steps": 4}})
    checkpoint_writer._SAVE_SHARE = 0
    found = {}
    recovery = Recovery(
        call, FitLoop(call), settings=settings, folder=None, clock=CheckpointSchedule()
    )
    try:
        result = recovery.fit(PLAIN_FIT if scenario == "Keras fit" else plan)
    except errors.UserError as error:
        found["error"] = str(error)
    else:
        history = result.history.history
        found["history"] = {key: list(map(float, value)) for key, value in history.items()}
        found |= {"notes": result.notes, "micro_batches": result.plan.micro_batches}
        found["iterations"] = int(tf.convert_to_tensor(model.optimizer.iterations))
        found["weights"] = [weight.astype(float).tolist() for weight in model.get_weights()]
    print(json.dumps({**found, "oom_count": recovery.oom_count}))


if __name__ == "__main__":
    with autograph.libraries_unconverted():
        main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
