"""Where OptimizedTrainer keeps the checkpoints of a training that may be interrupted."""

import contextlib
import json
import logging
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

from tfx.dsl.components.base import base_executor
from tfx.types import artifact

from tfx_perf import cache_key, errors, storage
from tfx_perf.training.recovery.folder_lock import FolderLock
from tfx_perf.training.trials import kept_choice

_LOGGER = logging.getLogger(__name__)

_FOLDER = "training_checkpoints"
# What another run goes on from, or heeds; anything else that a training writes there is of no use
# without it.
_OF_USE = (
    *kept_choice.FILE_NAMES,
    "fit-*/*/checkpoint-*",
    "fit-*/*/attempt.json",
    "fit-*/*/shortage.json",
)
_OF_NO_USE = ("fit-*", "model_run*")
# Another run before this one changes nothing about the training.
_IRRELEVANT_INPUTS = {"previous_metrics"}
# Nor does who looks on, or where the workers are.
_IRRELEVANT_SECTIONS = ("monitoring", "distribution", "gate")


def folder_for(
    context: base_executor.BaseExecutor.Context | None,
    input_dict: dict[str, list[artifact.Artifact]],
    exec_properties: dict[str, Any],
) -> str | None:
    """Returns a folder that the same training finds again, in whatever pipeline run it is.

    TFX keeps a `stateful_working_dir` beyond a failure, but names it by the execution, and a
    pipeline that is run again has another one. So the folder lies beside it and is named by
    what the node is given: inputs that were not made anew, code and settings.

    Args:
        context: the executor's.
        input_dict: of `Do`.
        exec_properties: of `Do`.

    Returns:
        None if the orchestrator gives no working folder, or a remote one.
    """
    working = context.stateful_working_dir if context else None
    if not working:
        return None
    if storage.is_remote(working):
        _LOGGER.warning(
            "A training that is interrupted will begin anew: checkpoints need a disk, and this "
            "node works in %s. Set training.checkpoint_folder to a folder that is mounted here.",
            working.partition("/.system")[0],
        )
        return None
    # <node>/.system/stateful_working_dir/<execution's index>
    return str(pathlib.Path(working).parents[1] / _FOLDER / name_for(input_dict, exec_properties))


def name_for(
    input_dict: dict[str, list[artifact.Artifact]], exec_properties: dict[str, Any]
) -> str:
    """Returns what a training has in common with no other one, but with itself in another run.

    Args:
        input_dict: of `Do`.
        exec_properties: of `Do`.
    """
    inputs = {
        key: [each.uri for each in artifacts]
        for key, artifacts in input_dict.items()
        if key not in _IRRELEVANT_INPUTS
    }
    settings = json.loads(exec_properties["config"])
    for section in _IRRELEVANT_SECTIONS:
        settings.pop(section, None)
    properties = {**exec_properties, "config": settings}
    given = json.dumps([inputs, properties], sort_keys=True, default=str)
    return cache_key.digest(given.encode())


@contextlib.contextmanager
def tidied(folder: str | None) -> Iterator[None]:
    """Removes a folder with the context, if another run would find nothing of use in it.

    A training that fails before its first checkpoint, or whose processes are killed, cannot do
    that itself.

    Args:
        folder: where the checkpoints go; None if there are none.
    """
    try:
        yield
    finally:
        path = pathlib.Path(folder) if folder else None
        if path is not None and path.is_dir() and not _matching(_OF_USE, path):
            with contextlib.suppress(errors.UserError):  # another process trains there by now
                lock = FolderLock(path)
                lock.acquire()
                for left in _matching(_OF_NO_USE, path):
                    shutil.rmtree(left, ignore_errors=True)
                lock.release()
                with contextlib.suppress(OSError):  # it holds something else
                    path.rmdir()


def _matching(patterns: tuple[str, ...], folder: pathlib.Path) -> list[pathlib.Path]:
    return [path for pattern in patterns for path in folder.glob(pattern)]
