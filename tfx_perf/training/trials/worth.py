"""Worth: whether trying one more plan saves more than it costs."""

import dataclasses
import math

from tfx_perf import formatting
from tfx_perf.training.plan import TrainingPlan

# Of what plain `fit` takes to trace and compile: what a plan takes, without XLA and with it.
_TRACE_RATIO, _XLA_RATIO = 3.0, 10.0
# Blocks of short steps that are timed; of long ones, those of the check and of the blocks.
_TIMING_SECONDS, _STEPS = 1.0, 60
# To begin taking turns on the user's data, and to end that.
_TURNS_SECONDS = 3.0


@dataclasses.dataclass(frozen=True)
class Prospect:
    """What is expected of trying a plan.

    Attributes:
        cost_seconds: of trying it.
        saving_seconds: what it may save in one run.
        planned_runs: runs that will use it.
    """

    cost_seconds: float
    saving_seconds: float
    planned_runs: int

    @property
    def is_worth_it(self) -> bool:
        """Whether it is expected to save more than it costs."""
        return self.planned_runs * self.saving_seconds > self.cost_seconds

    def runs_needed(self, *, beside_seconds: float) -> int | None:
        """Returns the smallest number of runs for which it is worth it; None if there is none.

        Args:
            beside_seconds: what it costs besides.
        """
        if not self.saving_seconds:
            return None
        cost_seconds = self.cost_seconds + beside_seconds
        return math.floor(cost_seconds / self.saving_seconds) + 1

    def __str__(self) -> str:
        """Returns why it is not tried."""
        cost, saving = map(
            formatting.format_seconds, (self.cost_seconds, self.saving_seconds)
        )
        return f"not tried: it would cost about {cost}, and may save {saving} a run"


@dataclasses.dataclass(frozen=True)
class Worth:
    """What a faster step is worth to a training.

    Attributes:
        step_count: of one training; None if not known, and then everything is worth trying.
        planned_runs: trainings that will use the plan.
    """

    step_count: int | None
    planned_runs: int

    def training_seconds(self, step_seconds: float) -> float:
        """Returns what all runs take together."""
        if self.step_count is None:
            return math.inf
        return self.planned_runs * self.step_count * step_seconds

    def prospect(
        self,
        plan: TrainingPlan,
        *,
        best: TrainingPlan,
        step_seconds: float,
        compile_seconds: float = 0.0,
        beside_seconds: float = 0.0,
    ) -> Prospect:
        """Returns what is expected of a plan.

        Args:
            plan: what may be tried.
            best: the fastest so far.
            step_seconds: of the fastest.
            compile_seconds: what plain `fit` takes to trace and compile.
            beside_seconds: what it costs besides.
        """
        added = set(plan.optimizations) - set(best.optimizations)
        hoped_seconds = sum(each.hoped_saving_seconds(step_seconds) for each in added)
        if best.is_plain_fit:  # there are no turns yet
            beside_seconds += _TURNS_SECONDS
        ratio = _XLA_RATIO if plan.uses_xla else _TRACE_RATIO
        saving_seconds = (
            math.inf
            if self.step_count is None
            else self.step_count * min(hoped_seconds, step_seconds)
        )
        return Prospect(
            cost_seconds=(
                beside_seconds
                + _TIMING_SECONDS
                + _STEPS * step_seconds
                + ratio * compile_seconds
            ),
            saving_seconds=saving_seconds,
            planned_runs=self.planned_runs,
        )
