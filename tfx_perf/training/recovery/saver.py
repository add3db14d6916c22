"""Saver: writes checkpoints, not too often, and never makes a training fail."""

import logging
import pathlib
import time
from collections.abc import Callable

import tensorflow as tf

from tfx_perf.training.recovery.checkpoint import Checkpoint
from tfx_perf.training.recovery.task import Task

# Training goes on for this many times what a save took before there is another.
_SAVE_SHARE = 50

_LOGGER = logging.getLogger(__name__)


class Saver:
    """Writes the checkpoints of one run of `fit`.

    Attributes:
        step: the one of the last checkpoint.
        count: checkpoints that were written.
        seconds: what saving has cost so far.
        note: why there are no more checkpoints; None while it goes well.
    """

    def __init__(self, task: Task) -> None:
        """Prepares to write into the task's store."""
        self.step = self.count = 0
        self.seconds = 0.0
        self.note: str | None = None
        self._task = task
        self._saved_at = time.perf_counter()
        self._last_seconds = 0.0

    def is_due(self, step: int, *, is_last: bool) -> bool:
        """Whether to save now.

        Args:
            step: training steps that are done.
            is_last: whether training ends with it.
        """
        settings = self._task.settings
        seconds = time.perf_counter() - self._saved_at
        steps_due = settings.checkpoint_steps and step - self.step >= settings.checkpoint_steps
        time_due = settings.checkpoint_seconds and seconds >= settings.checkpoint_seconds
        is_cheap = seconds >= _SAVE_SHARE * self._last_seconds
        return bool(
            self._task.is_lasting and is_cheap and (is_last or steps_due or time_due)
        )

    def save(self, step: int, fill: Callable[[pathlib.Path], Checkpoint]) -> None:
        """Writes a checkpoint; if that fails, training goes on without.

        Args:
            step: training steps that are done.
            fill: writes the files into a folder and returns their manifest.
        """
        began = time.perf_counter()
        try:
            self._task.store.save(fill)
        except (OSError, tf.errors.OpError) as error:
            if self.note is None:
                folder = self._task.store.folder
                self.note = f"A checkpoint could not be written to {folder}: {error}"
                _LOGGER.warning("%s Training goes on.", self.note)
        else:
            self.step = step
            self.count += 1
        self._saved_at = time.perf_counter()
        self._last_seconds = self._saved_at - began
        self.seconds += self._last_seconds
