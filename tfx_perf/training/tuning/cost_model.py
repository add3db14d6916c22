"""Estimates whether trying another plan saves more than it costs, and fits into the budget."""

import dataclasses
import math
import time
from collections.abc import Collection

from tfx_perf.core import formatting
from tfx_perf.training.replicas.sync import Sync
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.speedups.speedup import Speedup
from tfx_perf.training.tuning.choice import PlanChoice, plain

# A plan takes this many times as long as Keras' step to trace and compile, without and with XLA.
_TRACE_RATIO, _XLA_RATIO = 3.0, 10.0
# Cost of checking a plan: steps, including those of the reference, and overhead in seconds.
_STEPS, _CHECK_SECONDS = 60, 0.5
# Seconds to trace a small model's Keras step, and to time the second of `_PLANS` in turns.
_COMPILE_SECONDS, _TURNS_SECONDS = 0.3, 3.0
# The plan that is cheapest to try, and the one that saves most.
_PLANS = TrainingPlan(steps_per_execution=10), TrainingPlan(steps_per_execution=10, xla_loop=True)
# Seconds for the blocks of one more plan that is timed in turns.
_TIMING_SECONDS = 1.0
# Share of a step's time that turns save among plans that cannot be slower: on average 0.8% in
# docs/training_benchmark.json, 4.8% at most.
_TURNS_SHARE = 0.02
# Share of the remaining budget that the check of one plan may take.
CHECK_SHARE = 0.25
# Trials keep to their budget unless a compiler is slow or hangs. They are ended from outside after
# this many times their budget, plus this many seconds.
_LIMIT_BUDGETS, _LIMIT_SECONDS = 2, 30


@dataclasses.dataclass(frozen=True)
class CostEstimate:
    """The cost of trying a plan, and its expected saving in one run."""

    cost_seconds: float
    saving_seconds: float
    expected_runs: int

    @property
    def is_worth_it(self) -> bool:
        """Whether it is expected to save more than it costs."""
        return self.expected_runs * self.saving_seconds > self.cost_seconds

    def runs_needed(self, *, extra_seconds: float) -> int | None:
        """Returns the fewest runs that pay for it and for `extra_seconds`; None if none would."""
        if not self.saving_seconds:
            return None
        cost_seconds = self.cost_seconds + extra_seconds
        return math.floor(cost_seconds / self.saving_seconds) + 1

    @property
    def summary(self) -> str:
        """Both figures, formatted to follow "it would cost"."""
        cost, saving = map(formatting.format_seconds, (self.cost_seconds, self.saving_seconds))
        return f"about {cost}, and may save {saving} a run"

    def __str__(self) -> str:
        return f"not tried: it would cost {self.summary}"


@dataclasses.dataclass(frozen=True)
class CostModel:
    """Estimates what a faster step is worth to a training."""

    step_count: int  # of one training
    expected_runs: int

    def training_seconds(self, step_seconds: float) -> float:
        """Returns the time of all runs together."""
        return self.expected_runs * self.step_count * step_seconds

    def prospect(
        self,
        plan: TrainingPlan,
        *,
        tried: Collection[Speedup],
        step_seconds: float,
        operation_count: int = 0,
        compile_seconds: float = 0.0,
        extra_seconds: float = 0.0,
    ) -> CostEstimate:
        """Returns the expected cost and saving of a plan, over the fastest so far (`step_seconds`).

        Speedups already `tried` in other plans add nothing to the expected saving.
        """
        added = set(plan.speedups) - set(tried)
        expected_seconds = sum(
            max(
                each.expected_saving_seconds(step_seconds),
                operation_count * each.expected_operation_seconds,
            )
            for each in added
        )
        if not all(each.is_never_slower for each in added):
            extra_seconds += _TIMING_SECONDS
        ratio = _XLA_RATIO if plan.uses_xla else _TRACE_RATIO
        return CostEstimate(
            cost_seconds=(
                extra_seconds + _CHECK_SECONDS + _STEPS * step_seconds + ratio * compile_seconds
            ),
            saving_seconds=self.step_count * min(expected_seconds, step_seconds),
            expected_runs=self.expected_runs,
        )

    def prospect_of_turns(self, turns_seconds: float, *, step_seconds: float) -> CostEstimate:
        """Returns the expected cost and saving of timing plans of which none can be slower."""
        return CostEstimate(
            cost_seconds=turns_seconds,
            saving_seconds=self.step_count * _TURNS_SHARE * step_seconds,
            expected_runs=self.expected_runs,
        )

    def too_short(self, *, step_seconds: float | None = None) -> PlanChoice | None:
        """Returns Keras' `fit` if no plan may save what its trial costs; None if one may.

        Unless `step_seconds`, of Keras' `fit`, is known, a plan costs only its check's steps.
        """
        if step_seconds is None:
            enough_runs = [_STEPS // self.step_count + 1]
            if self.expected_runs >= enough_runs[0]:
                return None
            steps = f"{self.expected_runs * self.step_count} steps in all planned runs"
            reason = f"it has {steps}, and checking a plan takes as long as {_STEPS}"
        else:
            prospects = [
                self.prospect(
                    plan,
                    tried=(),
                    step_seconds=step_seconds,
                    compile_seconds=_COMPILE_SECONDS,
                    extra_seconds=seconds,
                )
                for plan, seconds in zip(_PLANS, (0.0, _TURNS_SECONDS), strict=True)
            ]
            if any(prospect.is_worth_it for prospect in prospects):
                return None
            took = formatting.format_seconds(self.step_count * step_seconds)
            cost = formatting.format_seconds(min(prospect.cost_seconds for prospect in prospects))
            reason = (
                f"its steps take about {took} with Keras fit, and trials would take {cost} at least"
            )
            counts = [prospect.runs_needed(extra_seconds=0.0) for prospect in prospects]
            enough_runs = [*filter(None, counts)]
        choice = plain(f"the training is too short for trials: {reason}", is_settled=True)
        return choice.model_copy(update={"enough_runs": min(enough_runs, default=None)})


class Budget:
    """The seconds left for trials, counted from its construction."""

    def __init__(self, seconds: float, *, sync: Sync) -> None:
        self._end = time.perf_counter() + seconds
        self._sync = sync
        self.lack = ""  # what did not fit, and what would make it fit, as part of a sentence

    def set_aside(self, seconds: float) -> None:
        """Reserves seconds for the end."""
        self._end -= seconds

    @property
    def left_seconds(self) -> float:
        """The seconds left by this process's clock, at least 0."""
        return max(0.0, self._end - time.perf_counter())

    def check_limit(self) -> float:
        """Returns when a check that begins now must end, on `time.perf_counter`'s clock."""
        return time.perf_counter() + self.left_seconds * CHECK_SHARE

    def lack_time_for_check(self) -> None:
        """Records that a check took longer than allowed."""
        self.lack = "a check needs more than a quarter of it; increase training.tuning_seconds"

    def has(self, seconds: float, *, what: str) -> bool:
        """Whether the `seconds` that `what` needs are left; records a lack. All workers call it."""
        left_seconds = self.left_seconds
        if self._sync.broadcast(seconds < left_seconds):
            return True
        left, needed = map(formatting.format_seconds, (left_seconds, seconds))
        more = math.ceil(max(0.0, seconds - left_seconds)) or 1  # 1 if only the chief lacks time
        self.lack = (
            f"only {left} of the budget were left, but {what} needs at least {needed}; "
            f"increase training.tuning_seconds by {more}"
        )
        return False


def limit_seconds(budget_seconds: float) -> float:
    """Returns the seconds after which trials with this budget count as hung."""
    return _LIMIT_BUDGETS * budget_seconds + _LIMIT_SECONDS
