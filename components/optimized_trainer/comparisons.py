"""Comparisons in turns of choices that are fixed for a process: devices, precision, oneDNN.

A failure costs only a possible gain: there are good plans without it. Results are kept beside the
checkpoints and in the record, so that no later run has to repeat the comparison.
"""

import logging
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from tfx_perf import isolate
from tfx_perf.components import in_turns, trainer_args
from tfx_perf.components.training_job import TrainingJob
from tfx_perf.core import errors, formatting, statistics
from tfx_perf.tf_internals import devices
from tfx_perf.training.replicas import strategies
from tfx_perf.training.speedups import onednn, precision
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.tuning import processes
from tfx_perf.training.tuning.choice import StrategyChoice
from tfx_perf.training.tuning.earlier import Earlier, KnownPlan, keep
from tfx_perf.training.tuning.processes import Comparison, Trained

# The share of the trials' budget that turns may take, and seconds for imports and compilation.
_SHARE, _START_SECONDS = 0.4, 300.0
_ONE, _ALL = strategies.ONE_DEVICE, "mirrored"
# Several, because the losses of a narrower type may not differ at first.
_PRECISION_LOSS_PASSES = 5
# It changes the results, and workers' step times vary more, so chance must not choose it.
_PRECISION_ROUNDS = 20

_LOGGER = logging.getLogger(__name__)


def may_try_onednn(job: TrainingJob) -> bool:
    """Whether turns with oneDNN may be worth it: not if already decided, nor if memory is short."""
    settings = job.settings.training
    return not {"onednn", "inexact"}.intersection(settings.excluded_speedups) and (
        onednn.is_open() and not settings.gradient_checkpointing
    )


def with_onednn(job: TrainingJob, *, log_folder: pathlib.Path) -> Comparison:
    """Compares Keras' `fit` with and without oneDNN, in turns, in the trials' remaining budget."""
    return compare(
        job, {"onednn-on": TrainingPlan(onednn=True)}, as_it_is="onednn-off", log_folder=log_folder
    )


def in_one_precision(
    job: TrainingJob, known: KnownPlan, *, earlier: Earlier, log_folder: pathlib.Path
) -> tuple[TrainingJob, KnownPlan]:
    """Returns `job` and `known` with the precision that `training.precision: auto` selects.

    A dtype policy takes effect when a layer is created, so each precision has its own processes.
    None is tried if the plan is known, for a job in a cluster, or with parameter servers.
    """
    if job.settings.training.precision != "auto":
        return job, known
    distribution = job.settings.distribution
    is_tried = distribution.job is None and distribution.servers is None
    choice = known.choice
    if choice is not None and (is_tried or choice.plan.precision):
        return job.with_settings("training", precision=choice.plan.precision), known
    if not is_tried:
        return job, known
    plans = {
        name.replace("_", "-"): TrainingPlan(precision=name) for name in precision.candidates()
    }
    comparison = earlier.comparison(plans.values())
    if comparison is None:
        began = time.monotonic()
        comparison = compare(
            job,
            plans,
            as_it_is="own-precision",
            loss_passes=_PRECISION_LOSS_PASSES,
            fewest_rounds=_PRECISION_ROUNDS,
            log_folder=log_folder,
        )
        update = {"key": known.key, "wall_seconds": time.monotonic() - began}
        comparison = comparison.model_copy(update=update)
        keep(earlier.folder, comparison)
    job = job.with_settings("training", precision=comparison.plan.precision)
    return job.after_trials(comparison.seconds), known.within(comparison)


def compare(
    job: TrainingJob,
    plans: Mapping[str, TrainingPlan],
    *,
    as_it_is: str,
    loss_passes: int = 1,
    fewest_rounds: int = in_turns.MIN_ROUNDS,
    log_folder: pathlib.Path,
) -> Comparison:
    """Compares Keras' `fit` as it is, under the name `as_it_is`, with each plan, in turns.

    At least `fewest_rounds` blocks are run if the turns' share of the trials' budget allows it.
    """
    trainings = {as_it_is: job, **{name: job.with_plan(plan) for name, plan in plans.items()}}
    seconds = _SHARE * job.settings.training.tuning_seconds
    try:
        without, *others = _in_turns(
            trainings,
            seconds=seconds,
            fewest_rounds=fewest_rounds,
            loss_passes=loss_passes,
            log_folder=log_folder,
        )
    except processes.FAILURES as error:
        _LOGGER.warning("%s could not be tried. %s", " and ".join(plans), error)
        return Comparison.failed([*plans.values()], error, seconds=seconds)
    by_plan = dict(zip(plans.values(), others, strict=True))
    return Comparison.of(without, by_plan, settings=job.settings.training, most_seconds=seconds)


def _in_turns(
    trainings: Mapping[str, TrainingJob],
    *,
    seconds: float,
    fewest_rounds: int = in_turns.MIN_ROUNDS,
    loss_passes: int = 1,
    log_folder: pathlib.Path,
) -> list[Trained]:
    margin = next(iter(trainings.values())).settings.training.margin
    return in_turns.train(
        trainings,
        seconds=seconds,
        start_seconds=_START_SECONDS,
        setting="training.tuning_seconds",
        log_folder=log_folder,
        decided=processes.settled_at(margin),
        rounds=(fewest_rounds, in_turns.MAX_ROUNDS),
        loss_passes=loss_passes,
    )


def strategy(
    job: TrainingJob, known: KnownPlan, *, earlier: Earlier, log_folder: pathlib.Path
) -> StrategyChoice | None:
    """Returns the choice of a strategy; None if the settings do not leave it open.

    `distribution.strategy: auto` compares one device with all of this machine's devices in one
    process. If training on several fails, one device trains.
    """
    if job.settings.distribution.strategy != "auto":
        return None
    choice = known.choice
    before = earlier.strategy or (None if choice is None else choice.strategy)
    if before is not None:
        return before.for_another_run()
    if choice is not None:
        return StrategyChoice(name=_ONE, reason=choice.plan_reason)
    began = time.monotonic()
    chosen = one_or_several(job, log_folder=log_folder)
    chosen = chosen.model_copy(update={"key": known.key, "seconds": time.monotonic() - began})
    keep(earlier.folder, chosen)
    return chosen


def device_count(*, exec_properties: dict[str, Any]) -> int:
    """Returns how many devices could train; runs in a child, as it fixes their configuration."""
    trainer_args.load_run_fn(exec_properties)
    return len(devices.computing())


def one_or_several(job: TrainingJob, *, log_folder: pathlib.Path) -> StrategyChoice:
    """Returns the faster of one device and all of them; one device if all cannot be tried."""
    log_folder.mkdir(parents=True, exist_ok=True)
    try:
        count = isolate.run(
            f"{__name__}:{device_count.__name__}",
            {"exec_properties": job.exec_properties},
            timeout_seconds=_START_SECONDS,
            log_path=log_folder / "devices.log",
            is_forked=True,
        )
    except errors.ChildError as error:
        return _unmeasured(f"this machine's devices could not be counted: it {error.cause}")
    if count == 1:
        return StrategyChoice(name=_ONE, reason="this machine has one device")
    settings = job.settings.training
    seconds = _SHARE * settings.tuning_seconds
    try:
        alone, together = _in_turns(
            {
                "one-device": job.with_settings("distribution", strategy=_ONE),
                "mirrored": job.with_settings("distribution", strategy=_ALL),
            },
            seconds=seconds,
            log_folder=log_folder,
        )
    except processes.FAILURES as error:
        cause = processes.cause_of(error).rstrip(".")
        return _unmeasured(f"{count} devices could not be tried: {cause}", seconds=seconds)
    speedup = statistics.ratio_interval(alone.step_seconds, together.step_seconds)
    difference = together.loss_difference(alone, tolerance=settings.loss_tolerance)
    is_faster = speedup.low > 1 + settings.margin
    shown = speedup.inverse() if speedup.value < formatting.SLOW else speedup
    reason = (
        f"a step on {count} devices is {formatting.compared_speed(speedup.value)} on one "
        f"(95% interval {shown.low:.2f} to {shown.high:.2f})"
    )
    return StrategyChoice(
        name=_ALL if is_faster and difference is None else _ONE,
        reason=reason if difference is None else f"{reason}, but its {difference}",
        speedup=speedup,
        turns_seconds=min(seconds, alone.seconds + together.seconds),
    )


def _unmeasured(reason: str, *, seconds: float = 0.0) -> StrategyChoice:
    _LOGGER.warning("One device trains: %s.", reason)
    return StrategyChoice(name=_ONE, reason=reason, turns_seconds=seconds)
