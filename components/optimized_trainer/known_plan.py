"""OptimizedTrainer's knowledge of the plan before workers start."""

from typing import ClassVar

from tfx_perf.core import records
from tfx_perf.training.optimizations.plan import TrainingPlan
from tfx_perf.training.optimizations.precision import Precision
from tfx_perf.training.trials.choice import PlanChoice
from tfx_perf.training.trials.processes import Comparison

FILE_NAME = "known_plan.json"


class KnownPlan(records.Record):
    """OptimizedTrainer's knowledge of the plan.

    With an empty `key` there are to be no trials; without a `choice`, they may find one.
    `too_short` is plain `fit`, if the training is known to be too short for trials. `spent_seconds`
    are those of the trials' budget so far.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.known_plan/1"

    key: dict[str, str] = {}
    choice: PlanChoice | None = None
    previous_plan: TrainingPlan | None = None
    too_short: PlanChoice | None = None
    comparison: Comparison | None = None
    spent_seconds: float = 0.0

    def within(self, comparison: Comparison) -> "KnownPlan":
        """Returns what is known in the precision that a comparison chose."""
        previous = self.previous_plan
        if previous is not None:  # trials have no other precision to try
            previous = previous.only(lambda each: each.name != Precision.name)
        return self.model_copy(
            update={
                "previous_plan": previous,
                "comparison": comparison,
                "spent_seconds": self.spent_seconds + comparison.seconds,
            }
        )

    def held_against(self, choice: PlanChoice) -> PlanChoice:
        """Returns the workers' choice, with what is known of the precision that they compute in."""
        return choice if self.comparison is None else self.comparison.held_against(choice)
