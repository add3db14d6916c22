"""Keeps choices beside the checkpoints, for the same training after an interruption."""

import contextlib
import logging
import pathlib
from collections.abc import Mapping
from typing import TypeVar

from tfx_perf.core import errors
from tfx_perf.training.trials.choice import PlanChoice, StrategyChoice
from tfx_perf.training.trials.processes import Comparison

_FILES = {
    PlanChoice: "choice.json",
    StrategyChoice: "strategy.json",
    Comparison: "precision.json",
}
FILE_NAMES = tuple(_FILES.values())

_LOGGER = logging.getLogger(__name__)

_Choice = TypeVar("_Choice", PlanChoice, StrategyChoice, Comparison)


def keep(folder: str | None, choice: PlanChoice | StrategyChoice | Comparison) -> None:
    """Keeps a choice with its key, if there is a folder that the training finds again."""
    if folder is None:
        return
    try:
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        choice.write(pathlib.Path(folder, _FILES[type(choice)]))
    except OSError as error:  # it costs trials, not the training
        _LOGGER.warning("What was chosen could not be kept in %s: %s", folder, error)


def kept(folder: str | None, kind: type[_Choice], *, key: Mapping[str, str]) -> _Choice | None:
    """Returns the kept choice of a kind with this key; None if there is none."""
    if folder is None:
        return None
    try:
        choice = kind.read(pathlib.Path(folder, _FILES[kind]))
    except errors.UserError:  # none, or one of another version
        return None
    return choice if choice.key == key else None


def kept_plan(folder: str | None, key: Mapping[str, str]) -> PlanChoice | None:
    """Returns the kept plan of an interrupted training with this key; None if there is none."""
    choice = kept(folder, PlanChoice, key=key)
    if choice is None:
        return None
    _LOGGER.info("The plan of a training that was interrupted is used again: %s.", choice.plan)
    return choice.model_copy(update={"trial_time_seconds": 0.0})


def forget(folder: str | None) -> None:
    """Removes the choices, once the model trained with them is safe."""
    if folder is not None:
        with contextlib.suppress(OSError):
            for name in FILE_NAMES:
                pathlib.Path(folder, name).unlink(missing_ok=True)
            pathlib.Path(folder).rmdir()  # unless there is something else in it
