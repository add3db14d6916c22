"""Clock: follows the progress of a training in another process, and can end it."""

import os
import pathlib
import threading
import time
from typing import Any

import numpy as np

_PROCESS, _BEGIN, _STEPS, _SECONDS, _END = range(5)
_POLL_SECONDS = 0.005


class Clock:
    """A file that the training's process writes to and the benchmark reads.

    Both map it into memory, so that a reading costs the training nothing.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Opens the clock; the first to do so makes the file."""
        made = pathlib.Path(path).exists()
        self._values = np.memmap(path, np.float64, "r+" if made else "w+", shape=5)

    @property
    def process(self) -> int:
        """The training's process; 0 before its first step."""
        return int(self._values[_PROCESS])

    def read(self) -> tuple[int, float]:
        """Returns the steps done, and when that was, by `time.monotonic`."""
        while True:
            seconds, steps = self._values[_SECONDS], self._values[_STEPS]
            if seconds == self._values[_BEGIN]:  # otherwise a write is under way
                return int(steps), float(seconds)

    def end(self) -> None:
        """Makes the training end soon, as if it were finished."""
        self._values[_END] = 1

    def follow(self, model: Any) -> None:
        """Writes the training's progress from a thread until the process ends.

        A callback that acts on every batch would also do, but a training with one can have no plan
        other than Keras' `fit`.
        """
        threading.Thread(target=self._follow, args=[model], daemon=True).start()

    def _follow(self, model: Any) -> None:
        before = int(model.optimizer.iterations)
        while True:
            steps = int(model.optimizer.iterations)
            if steps != before:
                self._write(steps, time.monotonic())
                before = steps
            if self._values[_END]:
                model.stop_training = True
            time.sleep(_POLL_SECONDS)

    def _write(self, steps: int, seconds: float) -> None:
        self._values[_PROCESS] = os.getpid()
        self._values[_BEGIN] = seconds
        self._values[_STEPS] = steps
        self._values[_SECONDS] = seconds
