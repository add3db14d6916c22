"""Points at which a training resumes: a checkpoint on disk, or one in this process' memory."""

import dataclasses
import pathlib
from typing import ClassVar

from tfx_perf.core import records
from tfx_perf.training.recovery.callback_state import CallbackSnapshot, CallbackState
from tfx_perf.training.recovery.data_position import Position, PositionSnapshot
from tfx_perf.training.recovery.training_state import StateSnapshot, TrainingState, Writers
from tfx_perf.training.replicas.sync import Sync
from tfx_perf.training.speedups.plan import TrainingPlan


class Checkpoint(records.Record):
    """A point of a training, and the files with its state."""

    SCHEMA: ClassVar[str] = "tfx_perf.checkpoint/5"

    step: int  # steps done, over all epochs
    epoch: int  # the running one, from 0
    step_in_epoch: int  # steps done in it
    fingerprint: dict[str, str]  # see `training_fingerprint`
    values: dict[str, str] = {}  # plain values among those that the fingerprint digests
    plan: TrainingPlan
    data: Position = Position()
    writers: Writers = Writers()  # the workers that trained so far
    trainable: tuple[bool, ...] = ()  # see `base_api.trainable_flags`
    trainable_at_first: tuple[bool, ...] = ()  # those with variables in the optimizer
    files: dict[str, str] = {}  # SHA-256 digests by name


@dataclasses.dataclass(frozen=True)
class DiskSnapshot:
    """A checkpoint on disk, from which the workers of `sync` resume."""

    checkpoint: Checkpoint
    folder: pathlib.Path
    sync: Sync
    has_other_writers: bool = False  # written with other numbers of replicas or workers

    @property
    def _part(self) -> pathlib.Path:
        return self.checkpoint.writers.part(self.folder, self.sync.rank)

    @property
    def position(self) -> PositionSnapshot:
        """The place in the data; if the replicas changed, data are divided and read again."""
        position = self.checkpoint.data
        if self.has_other_writers:
            position = position.model_copy(update={"is_saved": False})
        return PositionSnapshot.read(position, self._part)

    def restore(self, state: TrainingState) -> None:
        """Restores variables and generators; raises StateMismatchError."""
        state.read(self.folder, self.checkpoint.writers)

    @property
    def callbacks(self) -> CallbackSnapshot:
        """The state of the callbacks."""
        return CallbackState.read(self._part)

    def __str__(self) -> str:
        return f"step {self.checkpoint.step}: {self.folder}"


@dataclasses.dataclass(frozen=True)
class MemorySnapshot:
    """A point of this process' training, kept in memory; its checkpoint has no files."""

    checkpoint: Checkpoint
    state: StateSnapshot
    position: PositionSnapshot
    callbacks: CallbackSnapshot
    has_other_writers: ClassVar[bool] = False

    def restore(self, state: TrainingState) -> None:
        """Restores variables and generators; raises StateMismatchError."""
        state.restore(self.state)


ResumePoint = DiskSnapshot | MemorySnapshot
