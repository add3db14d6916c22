"""PlainFitTurns: what processes that trained plain `fit` in turns, each another way, came to.

Some things hold for a whole process: oneDNN's kernels, and the precision that a model is built in.
They are found out before all else, and the trials then run in processes that have them.
"""

from typing import Any, ClassVar

from tfx_perf import records
from tfx_perf.training.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.trials.choice import PlanChoice, TrialRecord


class PlainFitTurns(records.Record):
    """What came of the turns.

    Attributes:
        without: plain `fit` as it is; None if it was not measured.
        tried: plain `fit` in other ways; at most one was chosen.
        seconds: of the trials' budget that they took, in this run.
        wall_seconds: wall time that they took in this run, if nobody else counts it.
        key: what they depend on; see `plan_key`. Empty if they are not kept.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.plain_fit_turns/1"

    without: TrialRecord | None
    tried: tuple[TrialRecord, ...]
    seconds: float
    wall_seconds: float = 0.0
    key: dict[str, str] = {}

    @property
    def plan(self) -> TrainingPlan:
        """Plain `fit`, in another way if it is surely faster so."""
        return PLAIN_FIT if self._winner is None else self._winner.plan

    @property
    def may_pass(self) -> bool:
        """Whether the next run had better try again, since a failure need not come again."""
        return any(each.status == "failed" and each.may_pass for each in self.tried)

    def for_another_run(self) -> "PlainFitTurns":
        """Returns what they came to, for a run that takes none."""
        return self.model_copy(update={"seconds": 0.0, "wall_seconds": 0.0})

    def held_against(self, choice: PlanChoice) -> PlanChoice:
        """Returns what trials found in a process with this plan, with what the turns found."""
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
        """Returns what was found with the winner, held against plain `fit` as it is."""
        reference = next((each for each in choice.trials if each.plan.is_plain_fit), None)
        if reference is not None:
            winner = winner.model_copy(
                update={
                    "loss": reference.loss,
                    "compile_time_seconds": reference.compile_time_seconds,
                }
            )
        is_plain = choice.plan.is_plain_fit
        beside = [each for each in self.tried if each.plan != winner.plan]
        others = [_against(winner, each) for each in choice.trials if not each.plan.is_plain_fit]
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


def _against(winner: TrialRecord, other: TrialRecord) -> TrialRecord:
    """Returns a record whose speed-up over the winner is one over plain `fit` as it is."""
    update: dict[str, Any] = {"plan": _with(winner.plan, other.plan)}
    if other.speedup is not None and winner.speedup is not None:
        _, _, what = str(winner.plan).partition(", ")
        update["speedup"] = winner.speedup.times(other.speedup)
        update["reason"] = f"{other.reason}, both with {what}"
    return other.model_copy(update=update)


def _with(plan: TrainingPlan, other: TrainingPlan) -> TrainingPlan:
    """Returns another plan with what is on in a plan of plain `fit`."""
    return other.model_copy(
        update={each.name: getattr(plan, each.name) for each in plan.optimizations}
    )
