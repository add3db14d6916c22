"""Checkpoint: the manifest of one checkpoint."""

from typing import ClassVar

from tfx_perf import records
from tfx_perf.training.plan import TrainingPlan


class Checkpoint(records.Record):
    """Where a training stood, and which files hold its state.

    Attributes:
        step: training steps that are done, over all epochs.
        epoch: the running epoch, counted from 0.
        step_in_epoch: steps of that epoch that are done.
        fingerprint: what the training was; see `training_fingerprint.of`.
        plan: how its steps were run.
        logs: what the last call returned; None where it was not finite.
        data_passes: iterators that the training had used up before the one in use.
        data_steps: batches that were taken from the iterator in use.
        data_saved: whether the iterator's state is among the files. If not, the batches are
            read again and thrown away.
        files: SHA-256 digest of every file, by name.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.checkpoint/1"

    step: int
    epoch: int
    step_in_epoch: int
    fingerprint: dict[str, str]
    plan: TrainingPlan
    logs: dict[str, float | None] = {}
    data_passes: int = 0
    data_steps: int = 0
    data_saved: bool = False
    files: dict[str, str] = {}
