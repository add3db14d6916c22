"""What callbacks write, kept where an interrupted training finds it again."""

import copy
import logging
import pathlib
import shutil
import time

from tfx.components.trainer import fn_args_utils

from tfx_perf import storage, workers

_FOLDER = "model_run"

_LOGGER = logging.getLogger(__name__)


class KeptModelRun:
    """The folder that `run_fn` gets as `model_run_dir`, for as long as it trains.

    Every execution has another `ModelRun`, and TFX deletes that of one that failed. A training
    that goes on needs what its callbacks have written: logs to append to, the best weights so
    far. So it lies beside the checkpoints, and goes into the artifact when all is trained.
    Without checkpoints, and where the artifact is remote, it is the artifact's.
    """

    def __init__(self, arguments: fn_args_utils.FnArgs, *, checkpoint_folder: str | None) -> None:
        """Names the folder.

        Args:
            arguments: for `run_fn`.
            checkpoint_folder: see `TrainingSettings`.
        """
        self._arguments, self._began = arguments, time.time()
        self._kept: pathlib.Path | None = None
        if checkpoint_folder is not None and not storage.is_remote(arguments.model_run_dir):
            worker = workers.this()  # each has callbacks of its own
            name = _FOLDER if worker.is_chief else f"{_FOLDER}-{worker.index}"
            self._kept = pathlib.Path(checkpoint_folder, name)

    def begin(self) -> fn_args_utils.FnArgs:
        """Makes the folder, empty unless a checkpoint belongs to it; returns `run_fn`'s arguments.

        Nobody else may be training with the checkpoints.
        """
        kept = self._kept
        if kept is None:
            return self._arguments
        try:
            if not any(kept.parent.glob("fit-*/*/checkpoint-*")):
                shutil.rmtree(kept, ignore_errors=True)
            kept.mkdir(parents=True, exist_ok=True)
        except OSError as error:  # as for the checkpoints themselves, the training goes on
            _LOGGER.warning("What callbacks write is not kept for another run: %s", error)
            self._kept = None
            return self._arguments
        _LOGGER.info("While it trains, model_run_dir is %s.", kept)
        arguments = copy.copy(self._arguments)
        arguments.model_run_dir = str(kept)
        return arguments

    def begin_anew(self) -> None:
        """Removes what another training has left; what was written since this one began stays."""
        if self._kept is None:
            return
        for path in sorted(self._kept.rglob("*"), reverse=True):
            if path.is_dir():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path.stat().st_mtime < self._began:
                path.unlink()

    def publish(self) -> None:
        """Puts everything into the artifact."""
        if self._kept is None:
            return
        shutil.copytree(self._kept, self._arguments.model_run_dir, dirs_exist_ok=True)
        shutil.rmtree(self._kept, ignore_errors=True)
