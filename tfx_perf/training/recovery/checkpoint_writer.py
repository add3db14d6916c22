"""Writes the checkpoints of a training, not too often, and without ever making it fail."""

import dataclasses
import logging
import time
from collections.abc import Callable

from tfx_perf.config.training import TrainingSettings
from tfx_perf.training.recovery.checkpoint_store import CheckpointStore
from tfx_perf.training.replicas.sync import LostWorkerError

_LOGGER = logging.getLogger(__name__)

# Training continues for this many times the duration of a save before the next one.
_SAVE_SHARE = 50
# The duration assumed before the first save: that of a small model. Trainings shorter than
# `_SAVE_SHARE` times this have no checkpoint; training again takes no longer.
_FIRST_SECONDS = 0.04


@dataclasses.dataclass
class CheckpointSchedule:
    """When a checkpoint was last saved, over all `fit`s of a process."""

    saved_at: float = dataclasses.field(default_factory=time.perf_counter)
    save_seconds: float = _FIRST_SECONDS

    @property
    def since(self) -> float:
        """Seconds since the last checkpoint."""
        return time.perf_counter() - self.saved_at

    def leave_out(self, seconds: float) -> None:
        """Excludes seconds just spent on something other than training from `since`."""
        self.saved_at += seconds

    @property
    def is_cheap(self) -> bool:
        """Whether another checkpoint takes a small share of the time."""
        return self.since >= _SAVE_SHARE * self.save_seconds


class CheckpointWriter:
    """Saves one run of `fit` at times: into checkpoints, or in memory if `store` is None."""

    def __init__(
        self,
        store: CheckpointStore | None,
        *,
        clock: CheckpointSchedule,
        settings: TrainingSettings,
    ) -> None:
        self.step = self.count = 0
        self.note: str | None = None  # why there are no more checkpoints
        self._store, self._clock, self._settings = store, clock, settings

    def is_due(self, step: int, *, is_last: bool) -> bool:
        """Whether to save as soon as possible."""
        if step == self.step or (is_last and self._store is None):
            return False
        clock, most_steps = self._clock, self._settings.checkpoint_every_steps
        most_seconds = self._settings.checkpoint_every_seconds
        steps_due = most_steps and step - self.step >= most_steps
        time_due = most_seconds and clock.since >= most_seconds
        return bool((is_last or steps_due or time_due) and clock.is_cheap)

    def save(self, step: int, write: Callable[[], None]) -> None:
        """Saves by `write`; if that fails, training continues. Raises LostWorkerError."""
        clock, began = self._clock, time.perf_counter()
        try:
            write()
        except LostWorkerError:
            raise
        except Exception as error:  # a full disk, or anything unforeseen
            if self.note is None:
                # Messages of SaveV2 begin with the names of operations.
                reason = getattr(error, "message", str(error)).rpartition("}} ")[2]
                place = "memory" if self._store is None else self._store.folder
                self.note = f"A checkpoint could not be written to {place}: {reason}"
                _LOGGER.warning("%s. Training continues.", self.note.rstrip("."))
        else:
            self.step = step
            self.count += 1
        clock.saved_at = time.perf_counter()
        clock.save_seconds = clock.saved_at - began
