"""Interruptions of a training: from a callback, from the data, from inside a step."""

import os
import pathlib
import resource
import signal
from typing import Any

import numpy as np

from .cases import BATCH_SIZE, Case

# From a callback.
KILLS = ("sigkill", "sigkill_in_validation", "sigkill_after_epoch", "sigterm", "raise", "disk_full")
# From the data; "nan" comes every time, the others once.
IN_DATA = ("nan_once", "read_error", "memory_error")
INTERRUPTIONS = (*KILLS, "nan", *IN_DATA, "oom_in_step")
SIGNALS = {**dict.fromkeys(KILLS[:3], signal.SIGKILL), "sigterm": signal.SIGTERM}
MESSAGE = "planned for this test"


class Event:
    """Acts on the data or on a step, but only if `is_armed`."""

    def __init__(self, case: Case, folder: pathlib.Path, *, is_armed: bool) -> None:
        self._kind = case.interruption if is_armed else ""
        self._row = (case.at - 1) % case.steps * BATCH_SIZE + 1
        self._step = case.at
        self._flag = folder / "happened"
        self._calls = 0
        # Also where nothing happens, so that the training is the same.
        self.is_in_data = case.interruption in IN_DATA
        self.is_in_step = case.interruption == "oom_in_step"

    def spoiled(self, x: np.ndarray) -> np.ndarray:
        """Returns the features with a NaN, if it is to come every time."""
        if self._kind == "nan":
            x = x.copy()
            x[self._row, 2] = np.nan
        return x

    def read(self, features: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Is called for every row that is read."""
        if self.is_in_data and int(features[0]) == self._row and self._comes_now():
            if self._kind == "read_error":
                raise OSError(MESSAGE)
            if self._kind == "memory_error":
                raise MemoryError(MESSAGE)
            features = features.copy()
            features[2] = np.nan
        return features, target

    def in_step(self, value: np.ndarray) -> np.ndarray:
        """Is called in every step, and in any other call of the model in training."""
        self._calls += 1
        if self._calls == self._step and self._comes_now():
            raise MemoryError(MESSAGE)
        return value

    def _comes_now(self) -> bool:
        if not self._kind or self._flag.exists():
            return False
        self._flag.touch()
        return True


def callback(keras: Any, case: Case, *, is_armed: bool, steps_before: int) -> Any:
    """Returns the callback that interrupts a `fit`.

    Args:
        keras: the line.
        case: the case.
        is_armed: whether it does.
        steps_before: steps of the `fit`s before this one.
    """
    kind = case.interruption if is_armed else ""

    class Interruption(keras.callbacks.Callback):
        _supports_tf_logs = True

        def __init__(self):
            super().__init__()
            self._epoch = 0

        @property
        def _due(self):
            return self._step >= case.at

        def on_epoch_begin(self, epoch, logs=None):
            self._epoch = epoch
            self._step = steps_before + (epoch - case.initial_epoch) * case.epoch_length

        def on_train_batch_end(self, batch, logs=None):
            first = steps_before + (self._epoch - case.initial_epoch) * case.epoch_length
            self._step = first + batch + 1
            if kind in ("sigkill", "sigterm") and self._due:
                os.kill(os.getpid(), SIGNALS[kind])
            if kind == "raise" and self._due:
                raise RuntimeError(MESSAGE)
            if kind == "disk_full" and self._due:
                _fill_the_disk()

        def on_test_begin(self, logs=None):
            if kind == "sigkill_in_validation" and self._due:
                os.kill(os.getpid(), signal.SIGKILL)

        def on_epoch_end(self, epoch, logs=None):
            if kind == "sigkill_after_epoch" and self._due:
                os.kill(os.getpid(), signal.SIGKILL)

    return Interruption()


def is_interruption(callback: Any) -> bool:
    return type(callback).__name__ == "Interruption"


def _fill_the_disk() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))


def empty_the_disk() -> None:
    """Takes back what `disk_full` did."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
