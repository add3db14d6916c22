"""oneDNN, tried before all else: plain `fit` with it and without, in turns, a process each."""

import logging
import pathlib
from typing import Any, ClassVar

from tfx_perf import errors, records, statistics
from tfx_perf.components.training_job import in_turns
from tfx_perf.components.training_job.job import TrainingJob
from tfx_perf.hardware import onednn
from tfx_perf.settings.training import TrainingSettings
from tfx_perf.training.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.trials.choice import PlanChoice, Status, TrialRecord
from tfx_perf.training.trials.contender import speed_reason

_LOGGER = logging.getLogger(__name__)

_PLAN = TrainingPlan(onednn=True)
# What of the trials' budget the turns may take, beside imports and compilation.
_SHARE, _START_SECONDS = 0.4, 300.0


class OneDnnTurns(records.Record):
    """What came of the turns.

    Attributes:
        without: plain `fit`; None if it was not measured.
        tried: the same with oneDNN.
        seconds: of the budget that they took.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.onednn_turns/1"

    without: TrialRecord | None
    tried: TrialRecord
    seconds: float

    @property
    def plan(self) -> TrainingPlan:
        """Plain `fit`, with oneDNN if it is surely faster so."""
        return _PLAN if self.tried.status == "chosen" else PLAIN_FIT

    def held_against(self, choice: PlanChoice) -> PlanChoice:
        """Returns what trials found in a process with this plan, with what the turns found."""
        if self.without is not None and self.plan.onednn:
            choice = _with_onednn(choice, self.without, self.tried)
        else:
            choice = choice.model_copy(update={"trials": (*choice.trials, self.tried)})
        is_settled = choice.is_settled and self.tried.status != "failed"
        return choice.model_copy(update={"is_settled": is_settled})


def are_open(job: TrainingJob) -> bool:
    """Returns whether turns may be worth it.

    They are not where TensorFlow uses oneDNN anyway, or the user has decided, or memory is short
    (`recompute`): two processes would train at once.
    """
    return onednn.is_open() and not job.settings.training.recompute


def take(job: TrainingJob, *, log_folder: pathlib.Path) -> OneDnnTurns:
    """Trains plain `fit` with oneDNN and without, in turns.

    Args:
        job: the training.
        log_folder: where the processes' output goes.
    """
    settings = job.settings.training
    seconds = _SHARE * settings.trial_budget_seconds
    try:
        off, on = in_turns.train(
            {"onednn-off": job, "onednn-on": job.with_plan(_PLAN)},
            seconds=seconds,
            start_seconds=_START_SECONDS,
            setting="training.trial_budget_seconds",
            log_folder=log_folder,
            decided=in_turns.settled_at(settings.margin),
            compare_losses=True,
        )
    except (errors.MeasurementError, errors.UserError, OSError) as error:
        # There are good plans without it.
        _LOGGER.warning("oneDNN could not be tried. %s", error)
        reason = str(error)
        if isinstance(error, errors.ChildError):
            reason = f"its process {error.cause}"
        failed = TrialRecord(plan=_PLAN, status="failed", reason=reason)
        return OneDnnTurns(without=None, tried=failed, seconds=seconds)
    without, tried = _judged(off=off, on=on, settings=settings)
    return OneDnnTurns(
        without=without, tried=tried, seconds=min(seconds, off.seconds + on.seconds)
    )


def _judged(
    *, off: in_turns.Trained, on: in_turns.Trained, settings: TrainingSettings
) -> tuple[TrialRecord, TrialRecord]:
    ratio = statistics.ratio_interval(off.step_seconds, on.step_seconds)
    difference = in_turns.loss_difference(off, on, tolerance=settings.loss_tolerance)
    status: Status = "slower"
    reason = speed_reason(ratio, PLAIN_FIT)
    if difference is not None:
        status, reason = "different", difference
    elif ratio.surely_above(1 + settings.margin):
        status = "chosen"
    without = TrialRecord(
        plan=PLAIN_FIT,
        status="reference",
        reason="what plans must beat",
        step_time=statistics.median_interval(off.step_seconds),
    )
    tried = TrialRecord(
        plan=_PLAN,
        status=status,
        reason=reason,
        step_time=statistics.median_interval(on.step_seconds),
        speedup=ratio,
    )
    return without, tried


def _with_onednn(choice: PlanChoice, without: TrialRecord, tried: TrialRecord) -> PlanChoice:
    """Returns what was found with oneDNN, held against plain `fit` without it."""
    reference = next((each for each in choice.trials if each.plan.is_plain_fit), None)
    if reference is not None:
        tried = tried.model_copy(
            update={
                "loss": reference.loss,
                "compile_time_seconds": reference.compile_time_seconds,
            }
        )
    if not choice.plan.is_plain_fit:
        tried = tried.model_copy(update={"status": "slower"})
    others = [
        _against(tried, each) for each in choice.trials if not each.plan.is_plain_fit
    ]
    trials = (without, tried, *others)
    chosen = next(each for each in trials if each.status == "chosen")
    return choice.model_copy(
        update={"plan": chosen.plan, "plan_reason": chosen.reason, "trials": trials}
    )


def _against(tried: TrialRecord, other: TrialRecord) -> TrialRecord:
    """Returns a record whose speed-up over plain `fit` with oneDNN is one over it without."""
    update: dict[str, Any] = {"plan": other.plan.model_copy(update={"onednn": True})}
    if other.speedup is not None and tried.speedup is not None:
        update["speedup"] = tried.speedup.times(other.speedup)
        update["reason"] = f"{other.reason}, both with oneDNN"
    return other.model_copy(update=update)
