"""A training to be killed: with a plan, and a checkpoint every 4 steps; run as a script.

Arguments: the Keras package, and changed values of `DEFAULTS`, as JSON. Prints as JSON the results
that must be as if the training had not been interrupted, how it went, or its error.
"""

import contextlib
import importlib
import json
import os
import signal
import sys

import numpy as np
import tensorflow as tf
from keras_api import replica_cases
from model_cases import count_no_flops, session_with, without_autotune

from tfx_perf.core import interception
from tfx_perf.tf_internals import autograph
from tfx_perf.training.recovery import checkpoint_writer
from tfx_perf.training.speedups.plan import TrainingPlan

EPOCHS, LENGTH = 3, 10  # steps per epoch
DEFAULTS = {
    "folder": None,  # for checkpoints
    "steps_per_execution": None,  # of the plan; None is Keras' `fit`
    "xla_loop": False,  # of the plan
    "kill_at": np.inf,  # sends SIGKILL after the call that ran this step
    "terminate_at": np.inf,  # sends SIGTERM likewise
    "replicas": None,  # trains with MirroredStrategy on this many devices
    "is_random": True,  # the model has a Dropout
    "is_stateful": False,  # the data have a state that cannot be saved
    "steps_per_epoch": None,  # for endless data
    "csv": None,  # file of a CSVLogger
    "bad_row": None,  # index of a data row that is NaN; the rows are then not shuffled
}


def model_of(keras, *, is_random):
    layers = keras.layers
    dropout = [layers.Dropout(0.3)] if is_random else []
    inputs, hidden = layers.Input((4,)), layers.Dense(8, activation="relu")
    model = keras.Sequential([inputs, hidden, *dropout, layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse", metrics=["mae"])
    return model


def data_of(given):
    numbers = np.random.default_rng(0).normal(size=(LENGTH * 8, 5)).astype("float32")
    if given["bad_row"] is not None:
        numbers[given["bad_row"], 1] = np.nan
    data = tf.data.Dataset.from_tensor_slices(numbers)
    if given["bad_row"] is None:
        data = data.shuffle(LENGTH * 8, seed=7)
    if given["is_stateful"]:
        data = data.map(lambda row: tf.py_function(lambda row: row, [row], "float32"))
    data = data.map(lambda row: (tf.ensure_shape(row[:4], [4]), tf.ensure_shape(row[4:], [1])))
    data = without_autotune(data.batch(8).prefetch(2))
    return data.repeat() if given["steps_per_epoch"] else data


def trained(keras, given):
    keras.utils.set_random_seed(3)
    scope = contextlib.nullcontext()
    if given["replicas"] is not None:
        scope = replica_cases.strategy_of(given["replicas"]).scope()
    with scope:
        model = model_of(keras, is_random=given["is_random"])

    def after_call(batch, logs=None):
        step = int(model.optimizer.iterations.numpy())
        for name, number in (("kill_at", signal.SIGKILL), ("terminate_at", signal.SIGTERM)):
            if step >= given[name]:
                os.kill(os.getpid(), number)

    made = keras.callbacks
    stopping = made.EarlyStopping(monitor="val_loss", patience=50)
    callbacks = [
        made.ReduceLROnPlateau(monitor="loss", patience=0, min_delta=10.0, factor=0.5),
        made.LambdaCallback(on_train_batch_end=after_call),
        stopping,
        *([made.CSVLogger(given["csv"])] if given["csv"] else []),
    ]
    plan = TrainingPlan(
        steps_per_execution=given["steps_per_execution"], xla_loop=given["xla_loop"]
    )
    training = {"checkpoint_folder": given["folder"], "checkpoint_every_steps": 4}
    session = session_with(plan, training=training)
    numbers = np.random.default_rng(1).normal(size=(16, 5)).astype("float32")
    # Otherwise each process would spend 20 s on AutoGraph's conversion of tf_keras.
    with interception.intercepting_fit(session.fit), autograph.libraries_unconverted():
        history = model.fit(
            data_of(given),
            validation_data=(numbers[:, :4], numbers[:, 4:]),
            epochs=EPOCHS,
            steps_per_epoch=given["steps_per_epoch"],
            callbacks=callbacks,
            verbose=0,
        )
    return {
        "outcome": {
            "weights": [weight.tolist() for weight in model.get_weights()],
            "history": history.history,
            "epoch": history.epoch,
            "iterations": model.optimizer.iterations.numpy(),
            "learning_rate": model.optimizer.learning_rate.numpy(),
            "best": stopping.best,
        },
        "resumed_step": session.record.resumed_step,
        "notes": session.record.notes,
        "step_count": session.record.train_step_count,
    }


if __name__ == "__main__":
    checkpoint_writer._SAVE_SHARE = (
        0  # these trainings are too short for a save to be a small share
    )
    count_no_flops()
    found = trained(importlib.import_module(sys.argv[1]), DEFAULTS | json.loads(sys.argv[2]))
    print(json.dumps(found, default=float))
