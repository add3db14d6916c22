"""Calls of another thread while `fit` runs: none of them may take or add a step."""

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from .cases import Case
from .data import rows

CALLS = ("predicts", "other_predicts", "other_evaluates", "other_fits", "other_trains_on_batches")


@contextlib.contextmanager
def meanwhile(keras: Any, case: Case, model: Any) -> Iterator[list[Any]]:
    """Has a thread call Keras again and again; yields callbacks that wait until it has.

    Args:
        keras: the line.
        case: the case.
        model: that is trained.
    """
    if not case.thread:
        yield []
        return
    call = _call(keras, case, model)
    is_over, count, errors = threading.Event(), [0], []

    def run() -> None:
        try:
            while not is_over.is_set():
                call()
                count[0] += 1
        except BaseException as error:
            errors.append(error)

    def wait() -> None:
        before = count[0]
        while count[0] < before + 1 and not errors:
            time.sleep(0.001)

    class Waits(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            wait()

        def on_epoch_end(self, epoch, logs=None):
            wait()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield [Waits()]
    finally:
        is_over.set()
        thread.join()
        if errors:
            raise errors[0]


def _call(keras: Any, case: Case, model: Any) -> Any:
    if case.thread == "predicts":
        x, _ = rows(case, count=8, seed=2)
        return lambda: model.predict(x, verbose=0)
    other = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    other.compile("sgd", "mse", steps_per_execution=2)
    x, y = np.ones((6, 3), "float32"), np.ones((6, 1), "float32")
    data = tf.data.Dataset.from_tensors((x, y)).repeat(4)
    return {
        "other_predicts": lambda: other.predict(x, verbose=0),
        "other_evaluates": lambda: other.evaluate(data, verbose=0),
        "other_fits": lambda: other.fit(data, verbose=0),
        "other_trains_on_batches": lambda: other.train_on_batch(x, y),
    }[case.thread]
