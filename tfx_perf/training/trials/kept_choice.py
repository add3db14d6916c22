"""The choice that a training leaves for itself, should it be interrupted and begin again."""

import contextlib
import logging
import pathlib
from collections.abc import Mapping

from tfx_perf import errors
from tfx_perf.training.trials.choice import PlanChoice

_LOGGER = logging.getLogger(__name__)

FILE_NAME = "choice.json"


def keep(folder: str | None, choice: PlanChoice) -> None:
    """Leaves a choice, so that a training that is interrupted has no trials.

    Args:
        folder: that the training finds again, of its checkpoints, say; None if there is none.
        choice: with its key.
    """
    if folder is None:
        return
    try:
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        choice.replace(pathlib.Path(folder, FILE_NAME))
    except OSError as error:  # it costs trials, not the training
        _LOGGER.warning("The plan could not be kept in %s: %s", folder, error)


def kept(folder: str | None, key: Mapping[str, str]) -> PlanChoice | None:
    """Returns the choice that `keep` left, None if there is none with this key."""
    if folder is None:
        return None
    try:
        choice = PlanChoice.read(pathlib.Path(folder, FILE_NAME))
    except errors.UserError:  # none, or one of another version
        return None
    if choice.key != key:
        return None
    _LOGGER.info("The plan of a training that was interrupted is used again: %s.", choice.plan)
    return choice.model_copy(update={"trial_time_seconds": 0.0})


def forget(folder: str | None) -> None:
    """Removes the choice, once what was trained with it is safe."""
    if folder is not None:
        with contextlib.suppress(OSError):
            pathlib.Path(folder, FILE_NAME).unlink(missing_ok=True)
            pathlib.Path(folder).rmdir()  # unless there is something else in it
