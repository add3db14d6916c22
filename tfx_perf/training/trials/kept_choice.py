"""The choices that a training leaves for itself, should it be interrupted and begin again."""

import contextlib
import logging
import pathlib
from collections.abc import Mapping
from typing import TypeVar

from tfx_perf import errors
from tfx_perf.training.trials.choice import PlanChoice, StrategyChoice
from tfx_perf.training.trials.plain_fit_turns import PlainFitTurns

_LOGGER = logging.getLogger(__name__)

_PLAN_FILE, _STRATEGY_FILE, _PRECISION_FILE = "choice.json", "strategy.json", "precision.json"
FILE_NAMES = _PLAN_FILE, _STRATEGY_FILE, _PRECISION_FILE

_Choice = TypeVar("_Choice", PlanChoice, StrategyChoice, PlainFitTurns)


def keep(folder: str | None, choice: PlanChoice) -> None:
    """Leaves a choice, so that a training that is interrupted has no trials.

    Args:
        folder: that the training finds again, of its checkpoints, say; None if there is none.
        choice: with its key.
    """
    _keep(folder, _PLAN_FILE, choice)


def keep_strategy(folder: str | None, choice: StrategyChoice) -> None:
    """Leaves what the training is distributed by, which the plan is found under.

    Args:
        folder: see `keep`.
        choice: with its key.
    """
    _keep(folder, _STRATEGY_FILE, choice)


def keep_precision(folder: str | None, turns: PlainFitTurns) -> None:
    """Leaves what the turns of workers in several precisions came to.

    Args:
        folder: see `keep`.
        turns: with their key.
    """
    _keep(folder, _PRECISION_FILE, turns)


def kept(folder: str | None, key: Mapping[str, str]) -> PlanChoice | None:
    """Returns the choice that `keep` left, None if there is none with this key."""
    choice = _kept(folder, _PLAN_FILE, PlanChoice, key=key)
    if choice is None:
        return None
    _LOGGER.info("The plan of a training that was interrupted is used again: %s.", choice.plan)
    return choice.model_copy(update={"trial_time_seconds": 0.0})


def kept_strategy(folder: str | None, key: Mapping[str, str]) -> StrategyChoice | None:
    """Returns the choice that `keep_strategy` left, None if there is none with this key."""
    return _kept(folder, _STRATEGY_FILE, StrategyChoice, key=key)


def kept_precision(folder: str | None, key: Mapping[str, str]) -> PlainFitTurns | None:
    """Returns the turns that `keep_precision` left, None if there are none with this key."""
    return _kept(folder, _PRECISION_FILE, PlainFitTurns, key=key)


def forget(folder: str | None) -> None:
    """Removes the choices, once what was trained with them is safe."""
    if folder is not None:
        with contextlib.suppress(OSError):
            for name in FILE_NAMES:
                pathlib.Path(folder, name).unlink(missing_ok=True)
            pathlib.Path(folder).rmdir()  # unless there is something else in it


def _keep(folder: str | None, name: str, choice: _Choice) -> None:
    if folder is None:
        return
    try:
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        choice.write(pathlib.Path(folder, name))
    except OSError as error:  # it costs trials, not the training
        _LOGGER.warning("What was chosen could not be kept in %s: %s", folder, error)


def _kept(
    folder: str | None, name: str, kind: type[_Choice], *, key: Mapping[str, str]
) -> _Choice | None:
    if folder is None:
        return None
    try:
        choice = kind.read(pathlib.Path(folder, name))
    except errors.UserError:  # none, or one of another version
        return None
    return choice if choice.key == key else None
