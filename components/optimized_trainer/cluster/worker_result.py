"""WorkerResult: what the first worker of a job hands back beside the model."""

from typing import ClassVar

from tfx_perf import records
from tfx_perf.training.record import TrainingRecord
from tfx_perf.unmeasured import Unmeasured


class WorkerResult(records.Record):
    """What was measured by the worker whose model is the training's.

    Attributes:
        record: of the training, or why there is none.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.worker_result/1"

    record: TrainingRecord | Unmeasured
