"""`distribution.strategy: auto`: one device, and all of this machine's if that is surely faster.

Both train plain `fit` in turns, a process each, on the same batches.
"""

import logging
import pathlib
from typing import Any

from tfx_perf import errors, statistics
from tfx_perf.components.processes import child
from tfx_perf.components.training_job import in_turns, trainer_args
from tfx_perf.components.training_job.job import TrainingJob
from tfx_perf.training import made_strategy
from tfx_perf.training.trials.choice import PlanChoice, StrategyChoice

_LOGGER = logging.getLogger(__name__)

_ONE, _ALL = "one_device", "mirrored"
# What of the trials' budget the turns may take, beside imports and compilation.
_SHARE, _START_SECONDS = 0.4, 300.0


def choose(
    job: TrainingJob, *, known: PlanChoice | None, log_folder: pathlib.Path
) -> StrategyChoice:
    """Returns what a training is distributed by.

    Whatever goes wrong with all devices together, one trains.

    Args:
        job: the training, with plain `fit`.
        known: the choice of a plan, which is not tried again; None if there will be trials.
        log_folder: where the processes' output goes.

    Raises:
        UserError: there is no such module.
    """
    if known is not None and known.strategy is not None:
        return known.strategy.model_copy(update={"turns_seconds": 0.0})
    if known is not None:
        return StrategyChoice(name=_ONE, reason=known.plan_reason)
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
    return _by_turns(job, count=count, log_folder=log_folder)


def device_count(*, exec_properties: dict[str, Any]) -> int:
    """Returns how many devices could train, as the user's module has configured them.

    Is run in a child: after that they can be configured no more.
    """
    trainer_args.load_run_fn(exec_properties)
    return len(made_strategy.devices())


def _by_turns(job: TrainingJob, *, count: int, log_folder: pathlib.Path) -> StrategyChoice:
    settings = job.settings.training
    seconds = _SHARE * settings.trial_budget_seconds
    try:
        one, together = in_turns.train(
            {name.replace("_", "-"): job.with_strategy(name) for name in (_ONE, _ALL)},
            seconds=seconds,
            start_seconds=_START_SECONDS,
            setting="training.trial_budget_seconds",
            log_folder=log_folder,
            decided=in_turns.settled_at(settings.margin),
            compare_losses=True,
        )
    except (errors.MeasurementError, errors.UserError, OSError) as error:
        cause = f"its process {error.cause}" if isinstance(error, errors.ChildError) else str(error)
        reason = f"{count} devices could not be tried: {cause.rstrip('.')}"
        return _unmeasured(reason, seconds=seconds)
    speedup = statistics.ratio_interval(one.step_seconds, together.step_seconds)
    difference = in_turns.loss_difference(one, together, tolerance=settings.loss_tolerance)
    is_faster = speedup.surely_above(1 + settings.margin)
    reason = (
        f"a step on {count} devices is {speedup.value:.2f} times as fast as on one (95 % interval "
        f"{speedup.low:.2f} to {speedup.high:.2f})"
    )
    return StrategyChoice(
        name=_ALL if is_faster and difference is None else _ONE,
        reason=reason if difference is None else f"{reason}, but its {difference}",
        speedup=speedup,
        turns_seconds=min(seconds, one.seconds + together.seconds),
    )


def _unmeasured(reason: str, *, seconds: float = 0.0) -> StrategyChoice:
    _LOGGER.warning("One device trains: %s.", reason)
    return StrategyChoice(name=_ONE, reason=reason, turns_seconds=seconds)
