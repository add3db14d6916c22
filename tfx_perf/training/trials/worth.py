"""Whether trying one more plan saves more than it costs, and whether there is time for it."""

import dataclasses
import math
import time

from tfx_perf.core import formatting
from tfx_perf.training.optimizations.plan import TrainingPlan
from tfx_perf.training.replicas.sync import Sync

# Of what plain `fit` takes to trace and compile: what a plan takes, without XLA and with it.
_TRACE_RATIO, _XLA_RATIO = 3.0, 10.0
# Of the check, and of the reference's that it is held to: their steps, and what stands around them.
_STEPS, _CHECK_SECONDS = 60, 0.5
# Blocks of one more plan, where turns are taken.
_TIMING_SECONDS = 1.0
# Of a step's time: what turns may still save among plans of which none can be slower.
_TURNS_SHARE = 0.1
# Trials keep to their budget but for a compiler, which takes what it takes, or hangs. They are
# ended from outside after so many budgets and seconds.
_LIMIT_BUDGETS, _LIMIT_SECONDS = 2, 30


@dataclasses.dataclass(frozen=True)
class Prospect:
    """The cost of trying a plan, and its expected saving in one run."""

    cost_seconds: float
    saving_seconds: float
    planned_runs: int

    @property
    def is_worth_it(self) -> bool:
        """Whether it is expected to save more than it costs."""
        return self.planned_runs * self.saving_seconds > self.cost_seconds

    def runs_needed(self, *, beside_seconds: float) -> int | None:
        """Returns the fewest runs for which it is worth its costs; None if there is no number."""
        if not self.saving_seconds:
            return None
        cost_seconds = self.cost_seconds + beside_seconds
        return math.floor(cost_seconds / self.saving_seconds) + 1

    def __str__(self) -> str:
        cost, saving = map(formatting.format_seconds, (self.cost_seconds, self.saving_seconds))
        return f"not tried: it would cost about {cost}, and may save {saving} a run"


@dataclasses.dataclass(frozen=True)
class Worth:
    """The worth of a faster step to a training."""

    step_count: int | None  # of one training; None: everything is worth trying
    planned_runs: int

    def training_seconds(self, step_seconds: float) -> float:
        """Returns the time of all runs together."""
        if self.step_count is None:
            return math.inf
        return self.planned_runs * self.step_count * step_seconds

    def prospect(
        self,
        plan: TrainingPlan,
        *,
        best: TrainingPlan,
        step_seconds: float,
        operation_count: int = 0,
        compile_seconds: float = 0.0,
        beside_seconds: float = 0.0,
    ) -> Prospect:
        """Returns what is expected of a plan over the fastest so far, whose step is known."""
        added = set(plan.optimizations) - set(best.optimizations)
        hoped_seconds = sum(
            max(
                each.hoped_saving_seconds(step_seconds),
                operation_count * each.hoped_operation_seconds,
            )
            for each in added
        )
        if not all(each.is_never_slower for each in added):
            beside_seconds += _TIMING_SECONDS
        ratio = _XLA_RATIO if plan.uses_xla else _TRACE_RATIO
        saving_seconds = self._saving_seconds(min(hoped_seconds, step_seconds))
        return Prospect(
            cost_seconds=(
                beside_seconds + _CHECK_SECONDS + _STEPS * step_seconds + ratio * compile_seconds
            ),
            saving_seconds=saving_seconds,
            planned_runs=self.planned_runs,
        )

    def prospect_of_turns(self, turns_seconds: float, *, step_seconds: float) -> Prospect:
        """Returns what is expected of turns between plans of which none can be slower."""
        return Prospect(
            cost_seconds=turns_seconds,
            saving_seconds=self._saving_seconds(_TURNS_SHARE * step_seconds),
            planned_runs=self.planned_runs,
        )

    def _saving_seconds(self, seconds_a_step: float) -> float:
        return math.inf if self.step_count is None else self.step_count * seconds_a_step


class Budget:
    """The seconds left for trials, from its making on."""

    def __init__(self, seconds: float, *, sync: Sync) -> None:
        self._end = time.perf_counter() + seconds
        self._sync = sync
        self.lack = ""  # what did not fit in, and how it would, in a part of a sentence

    def keep_back(self, seconds: float) -> None:
        """Reserves seconds for the end."""
        self._end -= seconds

    @property
    def left_seconds(self) -> float:
        """The seconds left by this process's clock, at least 0."""
        return max(0.0, self._end - time.perf_counter())

    def has(self, seconds: float, *, what: str) -> bool:
        """Whether `seconds`, the least for `what`, are left; notes a lack. All workers ask."""
        left_seconds = self.left_seconds
        if self._sync.broadcast(seconds < left_seconds):
            return True
        left, needed = map(formatting.format_seconds, (left_seconds, seconds))
        more = math.ceil(max(0.0, seconds - left_seconds)) or 1  # where the chief has less
        self.lack = (
            f"{left} of it were left, and {what} needs {needed} at least; "
            f"training.trial_budget_seconds has room for that if it is larger by {more}"
        )
        return False


def limit_seconds(budget_seconds: float) -> float:
    """Returns the seconds after which trials with this budget count as hung."""
    return _LIMIT_BUDGETS * budget_seconds + _LIMIT_SECONDS
