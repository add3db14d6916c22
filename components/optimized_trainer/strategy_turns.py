"""What trains where the settings say `auto`: one device, or several if these are surely faster.

`distribution.strategy: auto` has all of this machine's devices in one process as the alternative,
`distribution.workers: auto` worker processes with a share of its cores each. Both train plain `fit`
in turns, in processes of their own, on the same batches.
"""

import logging
import pathlib
import time
from typing import Any

from tfx_perf import errors, formatting, statistics
from tfx_perf.components.optimized_trainer import previous
from tfx_perf.components.processes import child
from tfx_perf.components.training_job import in_turns, trainer_args
from tfx_perf.components.training_job.job import TrainingJob
from tfx_perf.hardware import core_shares, host
from tfx_perf.training import made_strategy
from tfx_perf.training.trials import kept_choice
from tfx_perf.training.trials.choice import PlanChoice, StrategyChoice

_LOGGER = logging.getLogger(__name__)

_ONE, _ALL, _WORKERS = "one_device", "mirrored", "multi_worker"
# What of the trials' budget the turns may take, beside imports and compilation.
_SHARE, _START_SECONDS = 0.4, 300.0


def choose(
    job: TrainingJob,
    *,
    known: PlanChoice | None,
    key: dict[str, str],
    checkpoint_folder: str | None,
    log_folder: pathlib.Path,
) -> StrategyChoice | None:
    """Returns what a training is distributed by; None if the settings do not leave that open.

    Whatever goes wrong with several devices or workers, one trains.

    Args:
        job: the training, with plain `fit`.
        known: the choice of a plan, which is not tried again; None if there will be trials.
        key: of that one; see `plan_key`.
        checkpoint_folder: where a training that is interrupted finds what was chosen; None if
            nothing outlives the process.
        log_folder: where the processes' output goes; made if it is not there.

    Raises:
        UserError: there is no such module.
    """
    if not job.settings.distribution.is_open:
        return None
    before = (
        kept_choice.kept_strategy(checkpoint_folder, key)
        or previous.strategy(job.input_dict.get("previous_metrics") or (), key)
        or (None if known is None else known.strategy)
    )
    if before is not None:
        return before.for_another_run()
    if known is not None:
        return StrategyChoice(name=_ONE, reason=known.plan_reason)
    began = time.monotonic()
    log_folder.mkdir(parents=True, exist_ok=True)
    find_out = _by_workers if job.settings.distribution.workers == "auto" else _by_devices
    found = find_out(job, log_folder=log_folder)
    found = found.model_copy(update={"key": key, "seconds": time.monotonic() - began})
    kept_choice.keep_strategy(checkpoint_folder, found)
    return found


def device_count(*, exec_properties: dict[str, Any]) -> int:
    """Returns how many devices could train, as the user's module has configured them.

    Is run in a child: after that they can be configured no more.
    """
    trainer_args.load_run_fn(exec_properties)
    return len(made_strategy.devices())


def _by_devices(job: TrainingJob, *, log_folder: pathlib.Path) -> StrategyChoice:
    try:
        count = child.run_in_child(
            f"{__name__}:{device_count.__name__}",
            {"exec_properties": job.exec_properties},
            timeout_seconds=_START_SECONDS,
            log_path=log_folder / "devices.log",
            from_server=True,
        )
    except errors.ChildError as error:
        return _unmeasured(f"this machine's devices could not be counted: it {error.cause}")
    if count == 1:
        return StrategyChoice(name=_ONE, reason="this machine has one device")
    several = StrategyChoice(name=_ALL, reason=f"{count} devices")
    return _by_turns(job, several, log_folder=log_folder)


def _by_workers(job: TrainingJob, *, log_folder: pathlib.Path) -> StrategyChoice:
    if host.may_have_accelerators():
        reason = "this machine may have accelerators, which workers would have to share"
        return StrategyChoice(name=_ONE, reason=reason)
    count = core_shares.worth_trying()
    if count == 1:
        cores = len(core_shares.here().cores)
        reason = f"this process may use one NUMA node, with too few cores for two workers: {cores}"
        return StrategyChoice(name=_ONE, reason=reason)
    in_words = f"{count} workers with cores of their own"
    several = StrategyChoice(name=_WORKERS, worker_count=count, reason=in_words)
    return _by_turns(job, several, log_folder=log_folder)


def _by_turns(
    job: TrainingJob, several: StrategyChoice, *, log_folder: pathlib.Path
) -> StrategyChoice:
    """Returns what wins: one device, or several, whose reason so far says which these are."""
    settings = job.settings.training
    seconds = _SHARE * settings.trial_budget_seconds
    one = StrategyChoice(name=_ONE, reason="")
    try:
        alone, together = in_turns.train(
            {each.name.replace("_", "-"): job.distributed_by(each) for each in (one, several)},
            seconds=seconds,
            start_seconds=_START_SECONDS,
            setting="training.trial_budget_seconds",
            log_folder=log_folder,
            decided=in_turns.settled_at(settings.margin),
            loss_passes=1,
        )
    except (errors.MeasurementError, errors.UserError, OSError) as error:
        cause = f"its process {error.cause}" if isinstance(error, errors.ChildError) else str(error)
        reason = f"{several.reason} could not be tried: {cause.rstrip('.')}"
        return _unmeasured(reason, seconds=seconds)
    speedup = statistics.ratio_interval(alone.step_seconds, together.step_seconds)
    difference = in_turns.loss_difference(alone, together, tolerance=settings.loss_tolerance)
    is_faster = speedup.surely_above(1 + settings.margin)
    shown = speedup.inverse() if speedup.value < formatting.SLOW else speedup
    reason = (
        f"a step on {several.reason} is {formatting.compared_speed(speedup.value)} on one "
        f"(95 % interval {shown.low:.2f} to {shown.high:.2f})"
    )
    chosen = several if is_faster and difference is None else one
    return chosen.model_copy(
        update={
            "reason": reason if difference is None else f"{reason}, but its {difference}",
            "speedup": speedup,
            "turns_seconds": min(seconds, alone.seconds + together.seconds),
        }
    )


def _unmeasured(reason: str, *, seconds: float = 0.0) -> StrategyChoice:
    _LOGGER.warning("One device trains: %s.", reason)
    return StrategyChoice(name=_ONE, reason=reason, turns_seconds=seconds)
