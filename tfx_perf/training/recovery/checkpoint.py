"""Checkpoint: the manifest of one checkpoint."""

from typing import ClassVar

from tfx_perf import records
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.recovery.data_position import Position
from tfx_perf.training.recovery.writers import Writers


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
