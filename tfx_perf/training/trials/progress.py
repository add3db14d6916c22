"""TrialProgress: how far the trials have come, for whoever outlives them."""

from typing import ClassVar

from tfx_perf import records
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.trials.trial_record import TrialRecord


class TrialProgress(records.Record):
    """The state of trials that may end without a word.

    Attributes:
        began: when, in seconds since 1970 (another process will read it).
        running: the plans that are being tried; those of one traced function together.
        finished: the outcomes that are final, all of plans that cannot win.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.progress/1"

    began: float
    running: tuple[TrainingPlan, ...]
    finished: tuple[TrialRecord, ...]
