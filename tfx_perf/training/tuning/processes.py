"""Compares process-wide ways to train in turns, to find the one that is surely the fastest.

oneDNN's kernels, a dtype policy, other devices and other code cannot be changed within a process.
So each way runs Keras' `fit` in its own processes, block by block in turns with the others
(`components/in_turns.py`). A slow phase of a shared host then affects all of them, and cancels in
the ratio of their step times. Trials follow in a process of the winner's kind.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from tfx_perf.config.training import TrainingSettings
from tfx_perf.core import errors, records, statistics
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.tuning.choice import MUST_BEAT, PlanChoice, TrialRecord
from tfx_perf.training.tuning.contest import Contender, Contest

FAILURES = errors.MeasurementError, errors.UserError, OSError
"""Errors that may end a comparison of processes; the training continues without its result."""


@dataclasses.dataclass(frozen=True)
class Trained:
    """The measurements of one way to train."""

    step_seconds: list[float]  # one per block; the i-th blocks of all ways ran in a row
    seconds: float  # total time of its blocks
    losses: list[list[float]]  # one list per pass over the same batches; the first way has two

    def loss_difference(self, first: "Trained", *, tolerance: float) -> str | None:
        """Returns how losses differ if by too much, otherwise None; `tolerance` is relative."""
        start, again = first.losses
        difference, spread = (
            # Not max(), which may ignore NaN.
            float(np.max(np.abs(np.subtract(losses, start)) / np.maximum(np.abs(start), 1e-12)))
            for losses in (*self.losses, again)
        )
        allowed = tolerance + 2 * spread
        if difference <= allowed:  # false for NaN
            return None
        return f"loss differs by {difference:.1%}, allowed {allowed:.1%}"


def settled_at(margin: float) -> Callable[[list[list[float]]], bool]:
    """Returns a function that tells whether blocks have settled which ways reach the margin."""

    def decided(blocks: list[list[float]]) -> bool:
        ratios = [statistics.ratio_interval(blocks[0], other) for other in blocks[1:]]
        return all(not ratio.low <= 1 + margin <= ratio.high for ratio in ratios)

    return decided


def cause_of(error: Exception) -> str:
    """Returns a description of the cause of one of `FAILURES`."""
    return f"its process {error.cause}" if isinstance(error, errors.ChildError) else str(error)


class Comparison(records.Record):
    """Keras' `fit` as it is, compared with Keras' `fit` in other ways, each one a plan."""

    SCHEMA: ClassVar[str] = "tfx_perf.plain_fit_turns/1"

    without: TrialRecord | None  # None if it was not measured
    tried: tuple[TrialRecord, ...]  # at most one is chosen
    seconds: float  # of the trials' budget, in this run
    wall_seconds: float = 0.0  # in this run, unless it is counted elsewhere
    key: dict[str, str] = {}  # see `plan_key`; empty if not kept

    @classmethod
    def of(
        cls,
        without: Trained,
        others: Mapping[TrainingPlan, Trained],
        *,
        settings: TrainingSettings,
        most_seconds: float,
    ) -> "Comparison":
        """Returns the comparison: the fastest way wins if surely faster and with similar losses."""
        reference = Contender(PLAIN_FIT, blocks=without.step_seconds)
        contest = Contest(reference, margin=settings.margin)
        different = []
        for plan, trained in others.items():
            contender = Contender(plan, blocks=trained.step_seconds)
            reason = trained.loss_difference(without, tolerance=settings.loss_tolerance)
            if reason is None:
                contest.others.append(contender)
            else:
                record = contender.record(reference, None)
                update = {"status": "different", "reason": reason}
                different.append(record.model_copy(update=update))
        winner = contest.fastest()
        tried = [each.record(reference, winner) for each in contest.others]
        taken_seconds = sum(each.seconds for each in (without, *others.values()))
        return cls(
            without=reference.reference_record(MUST_BEAT),
            tried=(*tried, *different),
            seconds=min(most_seconds, taken_seconds),
        )

    @classmethod
    def failed(
        cls, plans: Sequence[TrainingPlan], error: Exception, *, seconds: float
    ) -> "Comparison":
        """Returns the comparison of plans that ended with an error, one of `FAILURES`."""
        reason, may_pass = cause_of(error), _may_pass(error, len(plans))
        tried = [
            TrialRecord(plan=plan, status="failed", reason=reason, may_pass=may_pass)
            for plan in plans
        ]
        return cls(without=None, tried=tuple(tried), seconds=seconds)

    @property
    def plan(self) -> TrainingPlan:
        """Keras' `fit`, in another way if that is surely faster."""
        return PLAIN_FIT if self._winner is None else self._winner.plan

    @property
    def may_pass(self) -> bool:
        """Whether the next run should try again, since a failure may not recur."""
        return any(each.status == "failed" and each.may_pass for each in self.tried)

    def for_another_run(self) -> "Comparison":
        """Returns the comparison for a run that makes none."""
        return self.model_copy(update={"seconds": 0.0, "wall_seconds": 0.0})

    def add_to(self, choice: PlanChoice) -> PlanChoice:
        """Returns the choice of trials in a process with this plan, with these results added."""
        if self.without is None or self._winner is None:
            choice = choice.model_copy(update={"trials": (*choice.trials, *self.tried)})
        else:
            choice = self._over_plain_fit(choice, without=self.without, winner=self._winner)
        return choice.model_copy(
            update={
                "is_settled": choice.is_settled and not self.may_pass,
                "trial_time_seconds": choice.trial_time_seconds + self.wall_seconds,
            }
        )

    @property
    def _winner(self) -> TrialRecord | None:
        return next((each for each in self.tried if each.status == "chosen"), None)

    def _over_plain_fit(
        self, choice: PlanChoice, *, without: TrialRecord, winner: TrialRecord
    ) -> PlanChoice:
        """Returns the choice of the winner's trials, with speedups over Keras' `fit` as it is."""
        references = (each for each in choice.trials if each.status == "reference")
        reference = next((each for each in references if each.plan.is_plain_fit), None)
        if reference is not None:
            winner = winner.model_copy(
                update={
                    "loss": reference.loss,
                    "compile_time_seconds": reference.compile_time_seconds,
                }
            )
        is_plain = choice.plan == (PLAIN_FIT if reference is None else reference.plan)
        beside = [each for each in self.tried if each.plan != winner.plan]
        others = [_against(winner, each) for each in choice.trials if each is not reference]
        chosen = next((each for each in others if each.status == "chosen"), None)
        reason = choice.plan_reason if chosen is None else chosen.reason
        tried = winner if is_plain else winner.model_copy(update={"status": "slower"})
        return choice.model_copy(
            update={
                "plan": _with(winner.plan, choice.plan),
                "plan_reason": winner.reason if is_plain else reason,
                "trials": (without, tried, *beside, *others),
            }
        )


def _may_pass(error: Exception, count: int) -> bool:
    """Whether another run with the same code may succeed; of several, the culprit is unknown."""
    if count > 1:
        return True
    if isinstance(error, errors.ChildError):
        return error.may_pass
    return not isinstance(error, errors.UserError)


def _against(winner: TrialRecord, other: TrialRecord) -> TrialRecord:
    """Returns a record with its speedup over the winner turned into one over Keras' `fit`."""
    update: dict[str, Any] = {"plan": _with(winner.plan, other.plan)}
    if other.speedup is not None and winner.speedup is not None:
        _, _, what = str(winner.plan).partition(", ")
        update["speedup"] = winner.speedup.times(other.speedup)
        update["reason"] = f"{other.reason}, both with {what}"
    return other.model_copy(update=update)


def _with(plan: TrainingPlan, other: TrainingPlan) -> TrainingPlan:
    """Returns the other plan with the speedups of `plan`, a variant of Keras' `fit`."""
    return other.model_copy(update={each.name: getattr(plan, each.name) for each in plan.speedups})
