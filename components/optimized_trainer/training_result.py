"""TrainingResult: what a process that trains hands back beside the model."""

from typing import ClassVar

from tfx_perf import records
from tfx_perf.training.record import TrainingRecord
from tfx_perf.unmeasured import Unmeasured


class TrainingResult(records.Record):
    """What was measured in the process whose model is the training's.

    Attributes:
        record: of the training, or why there is none.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.training_result/1"

    record: TrainingRecord | Unmeasured

    def with_notes(self, notes: tuple[str, ...]) -> "TrainingResult":
        """Returns the same with notes, where there is a record to hold them."""
        if isinstance(self.record, Unmeasured):
            return self
        record = self.record.model_copy(update={"notes": (*self.record.notes, *notes)})
        return self.model_copy(update={"record": record})
