"""Trainings in processes of their own, to be killed; run as a script by `Trainings`.

The script imports TensorFlow once and forks for every training, before TensorFlow has begun to
work: a real process each time, without the seconds of the import.
"""

import dataclasses
import importlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import traceback
from typing import Any

import numpy as np

EPOCHS, LENGTH = 3, 10  # steps of an epoch


@dataclasses.dataclass(frozen=True)
class Result:
    """How a training ended.

    Attributes:
        signal: the signal that ended the process; 0 if none did.
        output: what it wrote to its standard error.
        values: what it wrote down at its end; empty if it did not come to that.
    """

    signal: int
    output: str
    values: dict[str, Any]


class Trainings:
    """Starts trainings of one Keras line."""

    def __init__(self, package: str, folder: pathlib.Path) -> None:
        self._folder = folder
        self._count = 0
        self._process = subprocess.Popen(
            [sys.executable, __file__, package],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, **options: Any) -> Result:
        """Runs a training to its end; see `_train` for the options."""
        self._count += 1
        log, result = (self._folder / f"{self._count}.{end}" for end in ("log", "json"))
        request = {"log": str(log), "result": str(result), "options": options}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        values = json.loads(result.read_text()) if result.exists() else {}
        return Result(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, log.read_text(), values)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(10)


def _model(keras: Any, *, is_random: bool) -> Any:
    layers = keras.layers
    dropout = [layers.Dropout(0.3)] if is_random else []
    inputs, hidden = layers.Input((4,)), layers.Dense(8, activation="relu")
    model = keras.Sequential([inputs, hidden, *dropout, layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse", metrics=["mae"])
    return model


def _data(*, is_stateful: bool, bad_row: int | None) -> Any:
    import tensorflow as tf

    numbers = np.random.default_rng(0).normal(size=(LENGTH * 8, 5)).astype("float32")
    if bad_row is not None:
        numbers[bad_row, 1] = np.nan
    data = tf.data.Dataset.from_tensor_slices(numbers)
    if bad_row is None:
        data = data.shuffle(LENGTH * 8, seed=7)
    if is_stateful:
        data = data.map(lambda row: tf.py_function(lambda row: row, [row], "float32"))
    data = data.map(lambda row: (tf.ensure_shape(row[:4], [4]), tf.ensure_shape(row[4:], [1])))
    options = tf.data.Options()
    options.autotune.enabled = False  # its thread can delay the end of every fit
    return data.batch(8).prefetch(2).with_options(options)


def _train(
    package: str,
    *,
    folder: str | None,
    steps_per_call: int | None = None,
    xla_call: bool = False,
    kill_at: int | None = None,
    terminate_at: int | None = None,
    replicas: int | None = None,
    is_random: bool = True,
    is_stateful: bool = False,
    steps_per_epoch: int | None = None,
    csv: str | None = None,
    bad_row: int | None = None,
) -> dict[str, Any]:
    """Trains with a plan and a checkpoint every 4 steps.

    Args:
        package: the Keras line.
        folder: of the checkpoints.
        steps_per_call: of the plan; None is plain `fit`.
        xla_call: of the plan.
        kill_at: sends SIGKILL after the call in which this step was run.
        terminate_at: sends SIGTERM likewise.
        replicas: trains with MirroredStrategy on so many devices.
        is_random: the model has a Dropout.
        is_stateful: the data have a state that cannot be saved.
        steps_per_epoch: of endless data.
        csv: file of a CSVLogger.
        bad_row: of the data, in which NaN stands; they come in their order then.

    Returns:
        Everything that must be as if the training had not been interrupted, and how it went.
    """
    import contextlib

    from keras_api import replica_cases

    from tfx_perf.config import PerfConfig
    from tfx_perf.core import interception
    from tfx_perf.tf_internals import autograph
    from tfx_perf.training import model_flops
    from tfx_perf.training.optimizations.plan import TrainingPlan
    from tfx_perf.training.recovery import saver
    from tfx_perf.training.session import TrainingSession
    from tfx_perf.training.trials.choice import PlanChoice

    saver._SAVE_SHARE = 0  # these trainings are too short for a save to be a small share
    flops = model_flops.Flops(None, None, None)
    model_flops.count_flops = lambda model, batch: flops  # takes a second
    keras = importlib.import_module(package)
    keras.utils.set_random_seed(3)
    scope = contextlib.nullcontext()
    if replicas is not None:
        scope = replica_cases.strategy_of(replicas).scope()
    with scope:
        model = _model(keras, is_random=is_random)

    def after_call(batch: int, logs: Any = None) -> None:
        step = int(model.optimizer.iterations.numpy())
        if kill_at is not None and step >= kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if terminate_at is not None and step >= terminate_at:
            os.kill(os.getpid(), signal.SIGTERM)

    stopping = keras.callbacks.EarlyStopping(monitor="val_loss", patience=50)
    callbacks = [
        keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=0, min_delta=10.0, factor=0.5),
        keras.callbacks.LambdaCallback(on_train_batch_end=after_call),
        stopping,
        *([keras.callbacks.CSVLogger(csv)] if csv else []),
    ]
    training = {"checkpoint_folder": folder, "checkpoint_steps": 4}
    session = TrainingSession(PerfConfig.from_dict({"training": training}))
    plan = TrainingPlan(steps_per_call=steps_per_call, xla_call=xla_call)
    session._choose = lambda call, loop: PlanChoice(plan=plan, plan_reason="given")
    data = _data(is_stateful=is_stateful, bad_row=bad_row)
    numbers = np.random.default_rng(1).normal(size=(16, 5)).astype("float32")
    # In each process AutoGraph would convert tf_keras anew, for 20 s.
    with interception.intercepting_fit(session.fit), autograph.libraries_unconverted():
        history = model.fit(
            data.repeat() if steps_per_epoch else data,
            validation_data=(numbers[:, :4], numbers[:, 4:]),
            epochs=EPOCHS,
            steps_per_epoch=steps_per_epoch,
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


def _child(package: str, request: dict[str, Any]) -> None:
    with open(request["log"], "w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        result = _train(package, **request["options"])
    except Exception as error:
        traceback.print_exc()
        result = {"error": f"{type(error).__name__}: {error}"}
    pathlib.Path(request["result"]).write_text(json.dumps(result, default=float))
    sys.stderr.flush()
    os._exit(0)


def _main(package: str) -> None:
    importlib.import_module(package)
    importlib.import_module("tfx_perf.training.session")
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _child(package, json.loads(line))
        print(os.waitpid(child, 0)[1], flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
