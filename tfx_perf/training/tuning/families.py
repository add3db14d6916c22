"""The plans that trials try against Keras' `fit`."""

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import get_args

from tfx_perf.config import PerfConfig
from tfx_perf.config.training import SpeedupName
from tfx_perf.tf_internals import devices
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.measuring.memory import MemoryBaseline
from tfx_perf.training.speedups import SPEEDUPS
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.speedups.speedup import Fit
from tfx_perf.training.speedups.steps_per_execution import CALL_SECONDS
from tfx_perf.training.tuning.choice import TrialRecord

Family = tuple[TrainingPlan, ...]  # plans that share a traced function

# In a call that takes this long, the work done in Python (about 1 ms) is negligible.
_LONG_CALL_SECONDS = 0.1


def longest_call(step_seconds: float) -> int:
    """Returns how many steps a call may have; more would gain nothing."""
    least_seconds = max(step_seconds - CALL_SECONDS, 1e-6)  # one step's share of a longer call
    return max(1, int(_LONG_CALL_SECONDS / least_seconds))


def same_function(plan: TrainingPlan, other: TrainingPlan) -> bool:
    """Whether two plans differ only in how many steps a call has."""
    return plan.model_copy(update={"steps_per_execution": other.steps_per_execution}) == other


class TuningMemory:
    """Memory that trials leave in the training process, but that the training does not need.

    XLA and TensorFlow do not release the memory that compiling a program took, even if it is not
    used again; with an LSTM it was 200 MiB. The training needs only its own plan's program.
    """

    def __init__(self) -> None:
        self._began = self._now = MemoryBaseline.now().used_bytes
        self._taken: list[tuple[TrainingPlan, int]] = []

    @contextlib.contextmanager
    def of(self, plans: Sequence[TrainingPlan]) -> Iterator[None]:
        """Attributes memory that outlasts the context to `plans`, which share a traced function."""
        before = self._now
        yield
        self._now = MemoryBaseline.now().used_bytes
        self._taken += [(plan, self._now - before) for plan in plans]

    def beside(self, plan: TrainingPlan) -> int:
        """Returns the bytes left by other plans; call it when the trials are over."""
        others = (taken for tried, taken in self._taken if same_function(tried, plan))
        return max(0, MemoryBaseline.now().used_bytes - self._began - next(others, 0))


def reference(loop: FitLoop, *, settings: PerfConfig) -> TrainingPlan:
    """Returns the plan to compare with: Keras' `fit`, unless memory may not suffice."""
    fit = loop.described(settings)
    values = {
        name: each.always(fit)
        for name, each in SPEEDUPS.items()
        if each.saves_memory or each.in_plain_fit
    }
    plan = TrainingPlan(steps_per_execution=loop.users_steps_per_execution, **values)
    return plan if any(each.saves_memory for each in plan.speedups) else plan.plain


def untried(loop: FitLoop, *, settings: PerfConfig) -> TrainingPlan:
    """Returns a plan that computes the same as Keras' `fit`, no slower, and needs no trial."""
    fewest = min(*settings.training.steps_per_execution, loop.likely_train_length or 1)
    return _base(loop.described(settings, most_steps_per_execution=fewest))


def families(
    loop: FitLoop, *, settings: PerfConfig, step_seconds: float
) -> tuple[list[Family], list[TrialRecord]]:
    """Returns the plans to try, by family, and the records of plans that cannot be tried."""
    longest = min(longest_call(step_seconds), loop.likely_train_length or 1)
    fit = loop.described(settings, most_steps_per_execution=longest)
    base = _base(fit)
    compared_with = reference(loop, settings=settings)
    to_try, refused = [], []
    for name, each in SPEEDUPS.items():
        is_excluded = name in settings.training.excluded_speedups
        if name in _excluded(settings) and not is_excluded:
            continue
        plans = [
            plan
            for plan in each.plans(fit, base)
            if plan.steps_per_execution > 1 or not same_function(plan, compared_with)
        ]
        obstacle = each.obstacle(fit) if plans and not is_excluded else None
        if is_excluded:
            obstacle = "training.excluded_speedups names it"
        for plan in plans:
            reason = obstacle or _lacks(plan)
            if reason:
                refused.append(TrialRecord(plan=plan, status="untried", reason=reason))
            else:
                to_try.append(plan)
    return _by_function(to_try), refused


def _base(fit: Fit) -> TrainingPlan:
    always = {name: each.always(fit) for name, each in SPEEDUPS.items()}
    return allowed(TrainingPlan(**always), fit.settings)


def allowed(plan: TrainingPlan, settings: PerfConfig) -> TrainingPlan:
    """Returns a plan, perhaps of an earlier run, without speedups that settings exclude."""
    excluded = _excluded(settings)
    return plan.only(lambda each: each.name not in excluded)


def must_be_exact(settings: PerfConfig) -> bool:
    """Whether plans must match Keras' results bit for bit, as settings or TensorFlow require."""
    return "inexact" in settings.training.excluded_speedups or devices.are_deterministic()


def _excluded(settings: PerfConfig) -> Collection[str]:
    if not must_be_exact(settings):
        return settings.training.excluded_speedups
    tried = ("precision",) if settings.training.precision == "auto" else ()
    return (*get_args(SpeedupName), *tried)


def _lacks(plan: TrainingPlan) -> str | None:
    needed = plan.environment.items()
    lacking = [f"{name}={value}" for name, value in needed if os.environ.get(name) != value]
    return f"this process began without {', '.join(lacking)}" if lacking else None


def _by_function(plans: Iterable[TrainingPlan]) -> list[Family]:
    by_function: dict[TrainingPlan, list[TrainingPlan]] = {}
    for plan in plans:
        by_function.setdefault(plan.model_copy(update={"steps_per_execution": 1}), []).append(plan)
    return [tuple(family) for family in by_function.values()]
