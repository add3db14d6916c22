"""Task: what a guard has to know of the training that it guards."""

import dataclasses
from typing import Any

from tfx_perf.settings.training import TrainingSettings
from tfx_perf.training.keras_api.base_api import KerasApi
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.recovery.checkpoint_store import CheckpointStore
from tfx_perf.training.recovery.save_clock import SaveClock
from tfx_perf.training.recovery.training_fingerprint import TrainingFingerprint
from tfx_perf.training.team import Team


@dataclasses.dataclass(frozen=True)
class Task:
    """One `fit` that is guarded.

    Attributes:
        model: the compiled model.
        keras_api: the model's.
        epochs: number of the last epoch.
        initial_epoch: number of the first.
        epoch_length: steps of an epoch, None if unknown.
        plan: how the steps are run.
        fingerprint: of the training; it goes into the checkpoints.
        store: where these go; None if nothing is to outlive the process.
        team: who trains.
        clock: when there was one last.
        settings: when to save and what to watch.
        watches: whether NaN and Inf are an error.
        bad_at_first: see `TrainingState.bad_weights`, before this process has trained.
    """

    model: Any
    keras_api: KerasApi
    epochs: int
    initial_epoch: int
    epoch_length: int | None
    plan: TrainingPlan
    fingerprint: TrainingFingerprint
    store: CheckpointStore | None
    team: Team
    clock: SaveClock
    settings: TrainingSettings
    watches: bool
    bad_at_first: frozenset[int] = frozenset()
