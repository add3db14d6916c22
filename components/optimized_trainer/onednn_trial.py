"""Trials with oneDNN where plain `fit` is faster with it, which is found out in turns."""

import logging
import pathlib
import time
from typing import Any

from tfx_perf import errors, statistics
from tfx_perf.components.optimized_trainer import attempts
from tfx_perf.components.training_job import in_turns
from tfx_perf.components.training_job.job import TrainingJob
from tfx_perf.hardware import onednn
from tfx_perf.settings.training import TrainingSettings
from tfx_perf.training.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.trials.choice import PlanChoice, Status, TrialRecord
from tfx_perf.training.trials.contender import speed_reason
from tfx_perf.training.trials.equivalence import relative_difference

_LOGGER = logging.getLogger(__name__)

_PLAN = TrainingPlan(onednn=True)
# What of the trials' budget the turns may take, beside imports and compilation.
_SHARE, _START_SECONDS = 0.4, 300.0


def choose_plan_and_onednn(job: TrainingJob, *, log_folder: pathlib.Path) -> PlanChoice:
    """Returns what trials find, in a process with oneDNN if plain `fit` is surely faster there.

    That comes first, because what else pays depends on it. It is left out where TensorFlow uses
    oneDNN anyway, the user has decided, the training is too short for it (`is_worth_onednn`),
    or memory is short (`recompute`, or not enough for two): two processes would train at once.

    Args:
        job: the training.
        log_folder: where the children's output goes.

    Raises:
        UserError: the module, the splits or the examples are not there.
    """
    began = time.perf_counter()
    settings = job.settings.training
    budget_seconds = settings.trial_budget_seconds
    choice = attempts.choose_plan_in_child(
        job,
        budget_seconds=budget_seconds,
        log_folder=log_folder,
        may_put_off=onednn.is_open() and not settings.recompute,
    )
    if choice is not None:
        return choice
    without, tried, spent_seconds = _in_turns(
        job, seconds=_SHARE * budget_seconds, log_folder=log_folder
    )
    is_faster = tried.status == "chosen"
    choice = attempts.choose_plan_in_child(
        job,
        budget_seconds=budget_seconds - spent_seconds,
        log_folder=log_folder,
        environment=_PLAN.environment if is_faster else {},
    )
    assert choice is not None  # only what may be put off is
    if is_faster and without is not None:
        choice = _with_onednn(choice, without, tried)
    else:
        choice = choice.model_copy(update={"trials": (*choice.trials, tried)})
    return choice.model_copy(
        update={
            "trial_time_seconds": time.perf_counter() - began,
            "is_settled": choice.is_settled and tried.status != "failed",
        }
    )


def _in_turns(
    job: TrainingJob, *, seconds: float, log_folder: pathlib.Path
) -> tuple[TrialRecord | None, TrialRecord, float]:
    """Returns the records of plain `fit`, if it was measured, and of the same with oneDNN.

    And what of the seconds was used.
    """
    settings = job.settings.training
    try:
        off, on = in_turns.train(
            {"onednn-off": job, "onednn-on": job.with_plan(_PLAN)},
            seconds=seconds,
            start_seconds=_START_SECONDS,
            setting="training.trial_budget_seconds",
            log_folder=log_folder,
            decided=lambda blocks: _is_decided(blocks, settings.margin),
            compare_losses=True,
        )
    except (errors.MeasurementError, errors.UserError, OSError) as error:
        # There are good plans without it.
        _LOGGER.warning("oneDNN could not be tried. %s", error)
        reason = str(error)
        if isinstance(error, errors.ChildError):
            reason = f"its process {error.cause}"
        return None, TrialRecord(plan=_PLAN, status="failed", reason=reason), seconds
    return *_judged(off=off, on=on, settings=settings), min(seconds, off.seconds + on.seconds)


def _is_decided(blocks: list[list[float]], margin: float) -> bool:
    ratio = statistics.ratio_interval(*blocks)
    return not ratio.low <= 1 + margin <= ratio.high


def _judged(
    *, off: in_turns.Trained, on: in_turns.Trained, settings: TrainingSettings
) -> tuple[TrialRecord, TrialRecord]:
    ratio = statistics.ratio_interval(off.step_seconds, on.step_seconds)
    first, again = off.losses
    difference, spread = (relative_difference(loss, first) for loss in (*on.losses, again))
    allowed = settings.loss_tolerance + 2 * spread
    status: Status = "slower"
    reason = speed_reason(ratio, PLAIN_FIT)
    if not difference <= allowed:  # also if it is NaN
        status = "different"
        reason = f"loss differs by {difference:.1%} from {PLAIN_FIT}'s, allowed {allowed:.1%}"
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
    if other.speedup is not None:
        bounds = ("value", "low", "high")
        update["speedup"] = statistics.Interval(
            **{name: getattr(tried.speedup, name) * getattr(other.speedup, name) for name in bounds}
        )
        update["reason"] = f"{other.reason}, both with oneDNN"
    return other.model_copy(update=update)
