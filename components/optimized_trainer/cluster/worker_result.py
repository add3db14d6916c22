"""WorkerResult: what the first worker of a job hands back beside the model."""

from typing import ClassVar

from tfx_perf import records
from tfx_perf.training.record import TrainingRecord


class WorkerResult(records.Record):
    """What was measured by the worker whose model is the training's.

    Attributes:
        record: None if `run_fn` did not call `fit`.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.worker_result/1"

    record: TrainingRecord | None
