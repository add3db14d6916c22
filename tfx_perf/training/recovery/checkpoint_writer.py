"""Writes the checkpoints of a training, not too often, and never makes it fail."""

import dataclasses
import logging
import time
from collections.abc import Callable

from tfx_perf.config.training import TrainingSettings
from tfx_perf.training.recovery.checkpoint_store import CheckpointStore
from tfx_perf.training.replicas.sync import LostWorkerError

_LOGGER = logging.getLogger(__name__)

# Training goes on for this many times what a save took before there is another.
_SAVE_SHARE = 50
# What is taken for it before the first: of a small model. Shorter trainings have no checkpoint;
# training again takes no longer.
_FIRST_SECONDS = 0.04


@dataclasses.dataclass
class CheckpointSchedule:
    """When there was a checkpoint last, over all `fit`s of a process."""

    saved_at: float = dataclasses.field(default_factory=time.perf_counter)
    save_seconds: float = _FIRST_SECONDS

    @property
    def since(self) -> float:
        """Seconds since the last checkpoint."""
        return time.perf_counter() - self.saved_at

    def leave_out(self, seconds: float) -> None:
        """Leaves seconds just spent on something else than training out of `since`."""
        self.saved_at += seconds

    @property
    def is_cheap(self) -> bool:
        """Whether another checkpoint takes a small share of the time."""
        return self.since >= _SAVE_SHARE * self.save_seconds


class CheckpointWriter:
    """Saves one run of `fit` at times: into checkpoints, or in memory with store None."""

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
        settings, clock = self._settings, self._clock
        if step == self.step or (is_last and self._store is None):
            return False
        steps_due = (
            settings.checkpoint_every_steps and step - self.step >= settings.checkpoint_every_steps
        )
        time_due = (
            settings.checkpoint_every_seconds and clock.since >= settings.checkpoint_every_seconds
        )
        return bool((is_last or steps_due or time_due) and clock.is_cheap)

    def save(self, step: int, write: Callable[[], None]) -> None:
        """Saves by `write`; if that fails, training goes on without. Raises LostWorkerError."""
        clock, began = self._clock, time.perf_counter()
        try:
            write()
        except LostWorkerError:
            raise
        except Exception as error:  # a full disk, or what nobody has thought of
            if self.note is None:
                # SaveV2's begin with the names of operations.
                reason = getattr(error, "message", str(error)).rpartition("}} ")[2]
                place = "memory" if self._store is None else self._store.folder
                self.note = f"A checkpoint could not be written to {place}: {reason}"
                _LOGGER.warning("%s. Training continues.", self.note.rstrip("."))
        else:
            self.step = step
            self.count += 1
        clock.saved_at = time.perf_counter()
        clock.save_seconds = clock.saved_at - began
