"""What is known of the plan before workers start."""

from typing import ClassVar

from tfx_perf import records
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.trials.choice import PlanChoice

FILE_NAME = "known_plan.json"


class KnownPlan(records.Record):
    """What OptimizedTrainer knows of the plan.

    Attributes:
        key: of the choice; see `plan_key`. Empty if there are to be no trials.
        choice: of a run before; None if trials may find another one.
        previous_plan: see `Trials`.
        is_too_short: whether the training is known to be too short for trials.
        spent_seconds: of the trials' budget, before there were workers.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.known_plan/1"

    key: dict[str, str] = {}
    choice: PlanChoice | None = None
    previous_plan: TrainingPlan | None = None
    is_too_short: bool = False
    spent_seconds: float = 0.0
