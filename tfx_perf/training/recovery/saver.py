"""Saver: writes checkpoints, not too often, and never makes a training fail."""

import logging
import pathlib
import time
from collections.abc import Callable

from tfx_perf.training.recovery.checkpoint import Checkpoint
from tfx_perf.training.recovery.task import Task
from tfx_perf.training.team import LostWorkerError

_LOGGER = logging.getLogger(__name__)


class Saver:
    """Writes the checkpoints of one run of `fit`.

    Attributes:
        step: the one of the last checkpoint, or where the run began.
        count: checkpoints that were written.
        note: why there are no more checkpoints; None while it goes well.
    """

    def __init__(self, task: Task) -> None:
        """Prepares to write into the task's store."""
        self.step = self.count = 0
        self.note: str | None = None
        self._task = task

    def is_due(self, step: int, *, is_last: bool) -> bool:
        """Whether to save as soon as it can be done.

        Args:
            step: training steps that are done.
            is_last: whether training ends with it.
        """
        settings, clock = self._task.settings, self._task.clock
        if self._task.store is None or step == self.step:
            return False
        steps_due = settings.checkpoint_steps and step - self.step >= settings.checkpoint_steps
        time_due = settings.checkpoint_seconds and clock.since >= settings.checkpoint_seconds
        return bool((is_last or steps_due or time_due) and clock.is_cheap)

    def save(self, step: int, fill: Callable[[pathlib.Path], Checkpoint]) -> None:
        """Writes a checkpoint; if that fails, training goes on without.

        Args:
            step: training steps that are done.
            fill: writes the files into a folder and returns their manifest.

        Raises:
            LostWorkerError: the training is over.
        """
        store, clock, began = self._task.store, self._task.clock, time.perf_counter()
        assert store is not None  # who saves outlives the process
        try:
            store.save(fill)
        except LostWorkerError:
            raise
        except Exception as error:  # a full disk, or what nobody has thought of
            if self.note is None:
                # SaveV2's begin with the names of operations.
                reason = getattr(error, "message", str(error)).rpartition("}} ")[2]
                self.note = f"A checkpoint could not be written to {store.folder}: {reason}"
                _LOGGER.warning("%s. Training goes on.", self.note.rstrip("."))
        else:
            self.step = step
            self.count += 1
        clock.saved_at = time.perf_counter()
        clock.save_seconds = clock.saved_at - began
