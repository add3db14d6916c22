"""Tries the plan in a process with oneDNN, in turns with one without it."""

import logging
import pathlib
import tempfile
import time
from typing import Any

from tfx.types import artifact

from tfx_perf import errors, statistics
from tfx_perf.components import code_digest, in_turns
from tfx_perf.components.optimized_trainer import job
from tfx_perf.config import TrainingConfig
from tfx_perf.hardware import onednn
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.trials.choice import PlanChoice
from tfx_perf.training.trials.trial_record import TrialRecord

_LOGGER = logging.getLogger(__name__)

# The gain that is hoped for, and what it takes to find out, in start-ups of a trial process:
# two at once (they share the cores), and another one of the process that trains.
_HOPED_SHARE, _AT_ONCE, _START_UPS = 0.2, 2, 3
_RESERVED_SHARE = 0.4


def reserved_seconds(budget_seconds: float) -> float:
    """Returns what of the trials' budget is for this trial alone."""
    return _RESERVED_SHARE * budget_seconds if onednn.is_open() else 0.0


def with_onednn(
    found: PlanChoice,
    inputs: dict[str, list[artifact.Artifact]],
    exec_properties: dict[str, Any],
    *,
    settings: TrainingConfig,
    log_folder: pathlib.Path,
) -> PlanChoice:
    """Returns the choice, with oneDNN if the plan is faster with it and reaches the same loss.

    Nothing is tried where TensorFlow uses it anyway, the user has decided, or the training is
    too short for it.

    Args:
        found: what the trials chose without it.
        inputs: OptimizedTrainer's input artifacts.
        exec_properties: OptimizedTrainer's.
        settings: the section `training`.
        log_folder: where the children's output goes.
    """
    began = time.perf_counter()
    if not onednn.is_open() or not _may_pay(found):
        return found
    budget_seconds = settings.trial_budget_seconds
    seconds = max(budget_seconds - found.trial_time_seconds, reserved_seconds(budget_seconds))
    seconds += _AT_ONCE * _start_up_seconds(found)  # which no budget counts
    plan = _with_kernels(found).model_copy(update={"onednn": True})
    code = code_digest.training_digest(exec_properties)
    with tempfile.TemporaryDirectory(prefix="optimized-trainer-") as folder:
        paths = {}
        for name, each in (("onednn-off", found.plan), ("onednn-on", plan)):
            paths[name] = pathlib.Path(folder, f"{name}.json")
            training = job.TrainingJob.of(inputs, exec_properties, code=code, plan=each)
            training.write(paths[name])
        try:
            off, on = in_turns.train(
                paths,
                seconds=seconds,
                log_folder=log_folder,
                decided=lambda blocks: _is_decided(blocks, settings.margin),
                compare_losses=True,
            )
        except (errors.MeasurementError, errors.UserError, OSError) as error:
            # The plan is good without it.
            _LOGGER.warning("oneDNN could not be tried. %s", error)
            reason = str(error).partition(" Log: ")[0]
            trial = TrialRecord(plan=plan, status="failed", reason=reason)
        else:
            trial = _judged(found, plan, off=off, on=on, settings=settings)
    return _with(found, trial).model_copy(
        update={
            "trial_time_seconds": found.trial_time_seconds + time.perf_counter() - began,
        }
    )


def _may_pay(found: PlanChoice) -> bool:
    """Whether the training is so long that a usual gain makes up for the trial."""
    step_time = next((trial.step_time for trial in found.trials if _is_used(trial, found)), None)
    if step_time is None or not found.fit_step_count:
        return False
    hoped_seconds = _HOPED_SHARE * step_time.value * found.fit_step_count
    return hoped_seconds > _START_UPS * _start_up_seconds(found)


def _start_up_seconds(found: PlanChoice) -> float:
    return (found.trial_import_seconds or 0.0) + (found.trial_setup_seconds or 0.0)


def _is_used(trial: TrialRecord, found: PlanChoice) -> bool:
    return trial.plan == found.plan and trial.status in ("chosen", "reference")


def _is_decided(blocks: list[list[float]], margin: float) -> bool:
    ratio = statistics.ratio_interval(*blocks)
    return not ratio.low <= 1 + margin <= ratio.high


def _with_kernels(found: PlanChoice) -> TrainingPlan:
    """Returns the plan, or the fastest that runs TensorFlow's kernels: XLA has its own."""
    if not found.plan.uses_xla:
        return found.plan
    others = [each for each in found.trials if each.step_time and not each.plan.uses_xla]
    return min(others, key=lambda each: each.step_time.value).plan


def _judged(
    found: PlanChoice,
    plan: TrainingPlan,
    *,
    off: in_turns.Trained,
    on: in_turns.Trained,
    settings: TrainingConfig,
) -> TrialRecord:
    used = next(trial for trial in found.trials if _is_used(trial, found))
    ratio = statistics.ratio_interval(off.step_seconds, on.step_seconds)
    before = used.speedup.value if used.speedup else 1.0
    first, again = off.losses
    difference, spread = (abs(loss / first - 1) for loss in (on.losses[0], again))
    allowed = settings.loss_tolerance + 2 * spread
    status = "slower"
    reason = (
        f"{ratio.value:.2f} times the speed of {found.plan} without oneDNN "
        f"(95 % interval {ratio.low:.2f} to {ratio.high:.2f})"
    )
    if not difference <= allowed:  # also if it is NaN
        status = "different"
        reason = f"loss differs by {difference:.1%} with oneDNN, allowed {allowed:.1%}"
    elif ratio.low > 1 + settings.margin:
        status = "chosen"
    return TrialRecord(
        plan=plan,
        status=status,
        reason=reason,
        step_time=statistics.median_interval(on.step_seconds),
        speedup=statistics.Interval(
            value=before * ratio.value, low=before * ratio.low, high=before * ratio.high
        ),
    )


def _with(found: PlanChoice, trial: TrialRecord) -> PlanChoice:
    if trial.status != "chosen":
        return found.model_copy(update={"trials": (*found.trials, trial)})
    others = tuple(
        each.model_copy(update={"status": "slower"}) if each.status == "chosen" else each
        for each in found.trials
    )
    return found.model_copy(
        update={
            "plan": trial.plan,
            "plan_reason": trial.reason,
            "trials": (*others, trial),
        }
    )
