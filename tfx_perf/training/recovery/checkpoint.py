"""Where a training goes on: from a checkpoint on disk, or from what this process remembers."""

import dataclasses
import pathlib
from typing import Any, ClassVar

from tfx_perf.core import records
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.recovery import plain_data
from tfx_perf.training.recovery.callback_state import CallbackState, Captured
from tfx_perf.training.recovery.data_position import CapturedPosition, Position
from tfx_perf.training.recovery.training_state import CapturedState, TrainingState, Writers
from tfx_perf.training.team import Team


class Checkpoint(records.Record):
    """Where a training stood, and which files hold its state.

    Attributes:
        step: training steps that are done, over all epochs.
        epoch: the running epoch, counted from 0.
        step_in_epoch: steps of that epoch that are done.
        fingerprint: what the training was; see `training_fingerprint`.
        values: plain values in what the fingerprint digests.
        plan: how its steps were run.
        data: where it stood in its data.
        writers: who has trained until then.
        trainable: which layers were trained then; see `base_api.trainable_flags`.
        trainable_at_first: those of which the optimizer got variables.
        files: SHA-256 digest of every file, by name.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.checkpoint/4"

    step: int
    epoch: int
    step_in_epoch: int
    fingerprint: dict[str, str]
    values: dict[str, str] = {}
    plan: TrainingPlan
    data: Position = Position()
    writers: Writers = Writers()
    trainable: tuple[bool, ...] = ()
    trainable_at_first: tuple[bool, ...] = ()
    files: dict[str, str] = {}


@dataclasses.dataclass(frozen=True)
class SavedPoint:
    """A checkpoint on disk.

    Attributes:
        checkpoint: its manifest.
        folder: its files.
        team: who goes on from it.
        is_others: whether others have written it, another number of replicas or workers.
    """

    checkpoint: Checkpoint
    folder: pathlib.Path
    team: Team
    is_others: bool = False

    @property
    def _part(self) -> pathlib.Path:
        return self.checkpoint.writers.part(self.folder, self.team.index)

    @property
    def position(self) -> CapturedPosition:
        """Where in the data it is; others divide them otherwise, and read them again."""
        position = self.checkpoint.data
        if self.is_others:
            position = position.model_copy(update={"is_saved": False})
        return CapturedPosition.read(position, self._part)

    @property
    def logs(self) -> Any:
        """What the last call had returned."""
        return plain_data.unpacked(self.callbacks.logs)

    def put_back(self, state: TrainingState) -> None:
        """Puts variables and generators back; raises StateMismatchError."""
        state.read(self.folder, self.checkpoint.writers)

    @property
    def callbacks(self) -> Captured:
        """What the callbacks knew."""
        return CallbackState.read(self._part)

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
    is_others: ClassVar[bool] = False

    def put_back(self, state: TrainingState) -> None:
        """Puts variables and generators back; raises StateMismatchError."""
        state.put_back(self.state)

    def __str__(self) -> str:
        return f"step {self.checkpoint.step}"


ResumePoint = SavedPoint | CapturedPoint
