"""Plain `fit` as it is and in other ways, each in processes of its own, in turns."""

import logging
import pathlib
from collections.abc import Mapping

from tfx_perf import errors, statistics
from tfx_perf.components.training_job import in_turns
from tfx_perf.components.training_job.job import TrainingJob
from tfx_perf.settings.training import TrainingSettings
from tfx_perf.training.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.trials.choice import MUST_BEAT, Status, TrialRecord
from tfx_perf.training.trials.contender import speed_reason
from tfx_perf.training.trials.plain_fit_turns import PlainFitTurns

_LOGGER = logging.getLogger(__name__)

# What of the trials' budget the turns may take, beside imports and compilation.
_SHARE, _START_SECONDS = 0.4, 300.0


def take(
    job: TrainingJob,
    plans: Mapping[str, TrainingPlan],
    *,
    as_it_is: str,
    budget_seconds: float,
    loss_passes: int,
    fewest_rounds: int = in_turns.MIN_ROUNDS,
    log_folder: pathlib.Path,
) -> PlainFitTurns:
    """Trains plain `fit` as it is, and with each plan, in turns.

    Whatever fails costs what might have been gained: there are good plans without it.

    Args:
        job: the training.
        plans: plain `fit` in other ways, by the names of their trainings.
        as_it_is: the name of the training with none of these.
        budget_seconds: what is left of the trials'.
        loss_passes: see `in_turns.train`.
        fewest_rounds: blocks of each, at the least, if the time allows.
        log_folder: where the processes' output goes.
    """
    settings = job.settings.training
    seconds = _SHARE * budget_seconds
    is_settled = in_turns.settled_at(settings.margin)
    try:
        without, *others = in_turns.train(
            {as_it_is: job, **{name: job.with_plan(plan) for name, plan in plans.items()}},
            seconds=seconds,
            start_seconds=_START_SECONDS,
            setting="training.trial_budget_seconds",
            log_folder=log_folder,
            decided=lambda blocks: all(is_settled([blocks[0], other]) for other in blocks[1:]),
            rounds=(fewest_rounds, in_turns.MAX_ROUNDS),
            loss_passes=loss_passes,
        )
    except (errors.MeasurementError, errors.UserError, OSError) as error:
        _LOGGER.warning("%s could not be tried. %s", " and ".join(plans), error)
        reason = str(error)
        if isinstance(error, errors.ChildError):
            reason = f"its process {error.cause}"
        failed = [
            TrialRecord(
                plan=plan, status="failed", reason=reason, may_pass=_may_pass(error, len(plans))
            )
            for plan in plans.values()
        ]
        return PlainFitTurns(without=None, tried=tuple(failed), seconds=seconds)
    tried = [
        _judged(plan, trained, without=without, settings=settings)
        for plan, trained in zip(plans.values(), others, strict=True)
    ]
    taken_seconds = sum(each.seconds for each in (without, *others))
    return PlainFitTurns(
        without=TrialRecord(
            plan=PLAIN_FIT,
            status="reference",
            reason=MUST_BEAT,
            step_time=statistics.median_interval(without.step_seconds),
        ),
        tried=_with_one_winner(tried),
        seconds=min(seconds, taken_seconds),
    )


def _may_pass(error: Exception, count: int) -> bool:
    """Returns whether turns may come to something in another run with the same code.

    Args:
        error: that they ended with.
        count: of the plans that were tried. Of several nobody knows which one has failed.
    """
    if count > 1:
        return True
    if isinstance(error, errors.ChildError):
        return error.may_pass
    return not isinstance(error, errors.UserError)


def _judged(
    plan: TrainingPlan,
    trained: in_turns.Trained,
    *,
    without: in_turns.Trained,
    settings: TrainingSettings,
) -> TrialRecord:
    ratio = statistics.ratio_interval(without.step_seconds, trained.step_seconds)
    difference = in_turns.loss_difference(without, trained, tolerance=settings.loss_tolerance)
    status: Status = "slower"
    reason = speed_reason(ratio, PLAIN_FIT)
    if difference is not None:
        status, reason = "different", difference
    elif ratio.surely_above(1 + settings.margin):
        status = "chosen"
    return TrialRecord(
        plan=plan,
        status=status,
        reason=reason,
        step_time=statistics.median_interval(trained.step_seconds),
        speedup=ratio,
    )


def _with_one_winner(tried: list[TrialRecord]) -> tuple[TrialRecord, ...]:
    """Returns the records, of which the fastest that was good enough is chosen."""
    speedups = [
        each.speedup.value if each.status == "chosen" and each.speedup else 0.0 for each in tried
    ]
    return tuple(
        each.model_copy(update={"status": "slower"}) if 0.0 < speedup < max(speedups) else each
        for each, speedup in zip(tried, speedups, strict=True)
    )
