"""TrainingJob: what it takes to run a training again."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfx.types import artifact
from tfx.utils import json_utils

from tfx_perf import records
from tfx_perf.components import code_digest
from tfx_perf.training.plan import TrainingPlan

FILE_NAME = "job.json"


class TrainingJob(records.Record):
    """A training's code, data and plan, by reference: good as long as what it names is there.

    Attributes:
        inputs: OptimizedTrainer's input artifacts, by `tfx.utils.json_utils`.
        exec_properties: OptimizedTrainer's.
        code: digest of the code and its arguments, to tell whether they are still the same.
        plan: what the training ran with.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.job/1"

    inputs: str
    exec_properties: dict[str, Any]
    code: str
    plan: TrainingPlan

    @classmethod
    def of(
        cls,
        input_dict: dict[str, list[artifact.Artifact]],
        exec_properties: Mapping[str, Any],
        *,
        code: str,
        plan: TrainingPlan,
    ) -> "TrainingJob":
        """Returns the job of a training that OptimizedTrainer was given."""
        return cls(
            inputs=json_utils.dumps(input_dict),
            exec_properties=dict(exec_properties),
            code=code,
            plan=plan,
        )

    @property
    def is_unchanged(self) -> bool:
        """Whether the code is still what it was."""
        return code_digest.training_digest(self.exec_properties) == self.code
