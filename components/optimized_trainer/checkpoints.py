"""Checkpoints and callbacks' files of a training that may be interrupted."""

import contextlib
import copy
import json
import logging
import pathlib
import shutil
import time
from collections.abc import Iterator

from tfx.components.trainer import fn_args_utils
from tfx.dsl.components.base import base_executor

from tfx_perf.components.training_job import TrainingJob
from tfx_perf.core import cache_key, errors, storage, workers
from tfx_perf.training.recovery.folder_lock import FolderLock
from tfx_perf.training.tuning import earlier

_LOGGER = logging.getLogger(__name__)

_FOLDER, _SHARED_PREFIX, _MODEL_RUN = "training_checkpoints", "checkpoints-", "model_run"
# Files that another run resumes from or takes into account; without them, nothing else that a
# training writes there is useful.
_USEFUL = (
    *earlier.FILE_NAMES,
    "fit-*/*/checkpoint-*",
    "fit-*/*/attempt.json",
    "fit-*/*/shortage.json",
)
_USELESS = ("fit-*", "model_run*")
# Earlier runs do not change the training.
_IRRELEVANT_INPUTS = {"previous_metrics"}
# Neither does monitoring, the location of the workers, or the gate.
_IRRELEVANT_SECTIONS = ("monitoring", "distribution", "gate")


def folder_for(job: TrainingJob, context: base_executor.BaseExecutor.Context | None) -> str | None:
    """Returns a folder that the same training finds again in any pipeline run; None without a disk.

    The settings may name it; for a job on Kubernetes it is one that the workers share. Otherwise:
    TFX keeps a `stateful_working_dir` after a failure, but names it by the execution. So the folder
    lies beside it, and its name is a digest of the node's arguments: the URIs of its inputs, code
    and settings.
    """
    if job.checkpoint_folder is not None:
        return job.checkpoint_folder
    cluster = job.settings.distribution.job
    if cluster is not None:
        return str(pathlib.Path(cluster.shared_folder, f"{_SHARED_PREFIX}{_name_for(job)}"))
    working = context.stateful_working_dir if context else None
    if not working:
        return None
    if storage.is_remote(working):
        _LOGGER.warning(
            "An interrupted training will start from scratch: checkpoints need a disk, and this "
            "node works in %s. Set training.checkpoint_folder to a folder that is mounted here.",
            working.partition("/.system")[0],
        )
        return None
    # <node>/.system/stateful_working_dir/<execution's index>
    return str(pathlib.Path(working).parents[1] / _FOLDER / _name_for(job))


def _name_for(job: TrainingJob) -> str:
    """Returns a name that only the same training has in another run."""
    inputs = {
        key: [each.uri for each in artifacts]
        for key, artifacts in job.input_dict.items()
        if key not in _IRRELEVANT_INPUTS
    }
    settings = json.loads(job.exec_properties["config"])
    for section in _IRRELEVANT_SECTIONS:
        settings.pop(section, None)
    properties = {**job.exec_properties, "config": settings}
    given = json.dumps([inputs, properties], sort_keys=True, default=str)
    return cache_key.digest(given.encode())


@contextlib.contextmanager
def tidied(folder: str | None) -> Iterator[None]:
    """Removes a folder at the end of the context if another run would find nothing of use in it."""
    try:
        yield
    finally:
        path = pathlib.Path(folder) if folder else None
        if path is not None and path.is_dir() and not _matching(_USEFUL, path):
            with contextlib.suppress(errors.UserError):  # another process trains there by now
                lock = FolderLock(path)
                lock.acquire()
                for left in _matching(_USELESS, path):
                    shutil.rmtree(left, ignore_errors=True)
                lock.release()
                with contextlib.suppress(OSError):  # it holds something else
                    path.rmdir()


class KeptModelRun:
    """The folder that `run_fn` gets as `model_run_dir` while it trains.

    TFX deletes the `ModelRun` of a failed execution, but a resumed training needs the files of its
    callbacks, such as the best weights so far. So the folder lies beside the checkpoints and is
    moved into the artifact after the training. Without checkpoints, or with a remote artifact, it
    is the artifact's own folder.
    """

    def __init__(self, arguments: fn_args_utils.FnArgs, *, checkpoint_folder: str | None) -> None:
        self._arguments, self._began = arguments, time.time()
        self._kept: pathlib.Path | None = None
        if checkpoint_folder is not None and not storage.is_remote(arguments.model_run_dir):
            worker = workers.this()  # each has callbacks of its own
            name = _MODEL_RUN if worker.is_chief else f"{_MODEL_RUN}-{worker.index}"
            self._kept = pathlib.Path(checkpoint_folder, name)

    def begin(self) -> fn_args_utils.FnArgs:
        """Returns `run_fn`'s arguments with the folder, empty unless a checkpoint belongs to it."""
        folder = self._kept
        if folder is None:
            return self._arguments
        try:
            if not any(folder.parent.glob("fit-*/*/checkpoint-*")):
                shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:  # the training continues, as when checkpoints cannot be saved
            _LOGGER.warning("Files of callbacks are not kept for another run: %s", error)
            self._kept = None
            return self._arguments
        _LOGGER.info("While it trains, model_run_dir is %s.", folder)
        arguments = copy.copy(self._arguments)
        arguments.model_run_dir = str(folder)
        return arguments

    def discard_older_files(self) -> None:
        """Removes the files of another training, but not those written since this one began."""
        if self._kept is None:
            return
        for path in sorted(self._kept.rglob("*"), reverse=True):
            if path.is_dir():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path.stat().st_mtime < self._began:
                path.unlink()

    def publish(self) -> None:
        """Moves all files into the artifact."""
        if self._kept is None:
            return
        shutil.copytree(self._kept, self._arguments.model_run_dir, dirs_exist_ok=True)
        shutil.rmtree(self._kept, ignore_errors=True)


def _matching(patterns: tuple[str, ...], folder: pathlib.Path) -> list[pathlib.Path]:
    return [path for pattern in patterns for path in folder.glob(pattern)]
