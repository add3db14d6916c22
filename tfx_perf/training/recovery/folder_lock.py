"""FolderLock: one process at a time trains with a folder of checkpoints."""

import logging
import os
import pathlib

import fasteners

from tfx_perf.core import errors

_FILE = "in_use.lock"

_LOGGER = logging.getLogger(__name__)


class FolderLock:
    """Keeps other processes from training with a folder, for as long as this one lives.

    Two trainings in one folder would remove each other's drafts and resume from each other's
    checkpoints. The operating system releases the lock when the process ends or is killed.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = pathlib.Path(folder)
        self._lock: fasteners.InterProcessLock | None = None

    def acquire(self) -> None:
        """Takes the lock once, if the folder is writable; raises UserError if it is taken."""
        if self._lock is not None:
            return
        path = self._folder / _FILE
        lock = fasteners.InterProcessLock(path)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            has_it = lock.acquire(blocking=False)
        except OSError as error:  # training continues, as if a checkpoint cannot be written
            _LOGGER.warning("The checkpoint folder %s is not locked: %s", self._folder, error)
            return
        if not has_it:
            raise errors.UserError(
                "Expected a checkpoint folder that no other training uses. Received: "
                f"checkpoint_folder={self._folder}, which another process trains with. Wait for "
                "that training, end it, or give this one a folder of its own."
            )
        self._lock = lock

    def release(self) -> None:
        """Releases the lock, if this object has it, and removes its file."""
        if self._lock is not None:
            (self._folder / _FILE).unlink(missing_ok=True)
            self._lock.release()
            self._lock = None
