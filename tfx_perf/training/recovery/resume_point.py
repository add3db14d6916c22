"""Where a training goes on: from a checkpoint on disk, or from what this process remembers."""

import dataclasses
import pathlib
from typing import Any

from tfx_perf.training.recovery import logs_file
from tfx_perf.training.recovery.callback_state import CallbackState, Captured
from tfx_perf.training.recovery.checkpoint import Checkpoint
from tfx_perf.training.recovery.data_position import CapturedPosition
from tfx_perf.training.recovery.training_state import CapturedState, TrainingState


@dataclasses.dataclass(frozen=True)
class SavedPoint:
    """A checkpoint on disk.

    Attributes:
        checkpoint: its manifest.
        folder: its files.
    """

    checkpoint: Checkpoint
    folder: pathlib.Path

    @property
    def position(self) -> CapturedPosition:
        """Where in the data it is."""
        return CapturedPosition.read(self.checkpoint.data, self.folder)

    @property
    def logs(self) -> Any:
        """What the last call had returned."""
        return logs_file.read(self.folder)

    def put_back(self, state: TrainingState) -> None:
        """Puts variables and generators back; raises StateMismatchError."""
        state.read(self.folder)

    @property
    def callbacks(self) -> Captured:
        """What the callbacks knew."""
        return CallbackState.read(self.folder)

    def __str__(self) -> str:
        return f"step {self.checkpoint.step}: {self.folder}"


@dataclasses.dataclass(frozen=True)
class CapturedPoint:
    """A point of this process's own training.

    Attributes:
        checkpoint: its manifest, without files.
        state: variables and generators.
        position: where in the data it is.
        callbacks: what they knew.
        logs: what the last call had returned.
    """

    checkpoint: Checkpoint
    state: CapturedState
    position: CapturedPosition
    callbacks: Captured
    logs: Any

    def put_back(self, state: TrainingState) -> None:
        """Puts variables and generators back; raises StateMismatchError."""
        state.put_back(self.state)

    def __str__(self) -> str:
        return f"step {self.checkpoint.step}"


ResumePoint = SavedPoint | CapturedPoint
