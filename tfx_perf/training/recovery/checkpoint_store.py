"""CheckpointStore: a folder of checkpoints that a crash cannot corrupt."""

import contextlib
import hashlib
import logging
import os
import pathlib
import shutil
from collections.abc import Callable
from typing import ClassVar

from tfx_perf.core import errors, records
from tfx_perf.training.recovery.checkpoint import Checkpoint
from tfx_perf.training.replicas.sync import Sync, folder_of
from tfx_perf.training.speedups.plan import TrainingPlan

KEPT = 3
# Attempts of a plan without progress before it is abandoned; one may have ended by preemption.
MOST_ATTEMPTS = 2
_MANIFEST, _ATTEMPT, SHORTAGE = "manifest.json", "attempt.json", "shortage.json"
_PREFIX, _DRAFT = "checkpoint-", "draft-"
_NAME_DIGITS = 16  # of the manifest's digest, in the folder's name
_BLOCK_BYTES = 2**20

_LOGGER = logging.getLogger(__name__)


class Attempt(records.Record):
    """A training that was started or resumed at `step`, `count` times with this plan."""

    SCHEMA: ClassVar[str] = "tfx_perf.attempt/1"

    plan: TrainingPlan
    step: int
    count: int


class CheckpointStore:
    """Checkpoints of one training, each in a folder of its own.

    A checkpoint is written into a draft folder, flushed to disk and renamed, so that it exists
    completely or not at all. The manifest has the digest of every file, and the folder's name has
    the manifest's. If there are several workers, each writes its part into a folder in the draft,
    and the chief renames the draft when all parts are written.

    Example:
        >>> store = CheckpointStore("/tmp/run")
        >>> store.save(fill)  # `fill` writes into a folder and returns the manifest
        >>> folder, found = store.latest()
    """

    def __init__(self, folder: str | os.PathLike[str], *, sync: Sync | None = None) -> None:
        """Opens a folder, if it exists, that all workers see; `sync` None is this process alone."""
        self.folder = pathlib.Path(folder)
        self._sync = sync or Sync()
        self._damaged: set[pathlib.Path] = set()

    def save(self, fill: Callable[[pathlib.Path], Checkpoint]) -> None:
        """Adds a checkpoint, which `fill` writes, and removes superfluous ones.

        `fill` returns the manifest without `files`. Earlier checkpoints stay intact after any
        error: OSError, SyncError if another worker could not write, or an error of `fill`.
        """
        sync, draft = self._sync, self.folder / f"{_DRAFT}next"

        def begin() -> None:
            self._remove_drafts()
            draft.mkdir(parents=True)

        def write() -> Checkpoint:
            part = draft / folder_of(sync.rank, sync.size)
            part.mkdir(exist_ok=True)
            return fill(part)

        try:
            sync.barrier(begin, chief_only=True)
            checkpoint = sync.barrier(write)
            assert checkpoint is not None  # all have written
            sync.barrier(lambda: self._commit(draft, checkpoint), chief_only=True)
        finally:
            if sync.is_chief:
                self._remove_drafts()

    def _commit(self, draft: pathlib.Path, checkpoint: Checkpoint) -> None:
        paths = sorted(path for path in draft.rglob("*") if path.is_file())
        files = {str(path.relative_to(draft)): _digest(path) for path in paths}
        manifest = draft / _MANIFEST
        checkpoint.model_copy(update={"files": files}).write(manifest)
        for path in draft.rglob("*"):
            _flush(path)
        _flush(draft)
        name = f"{_PREFIX}{checkpoint.step:012d}-{_digest(manifest)[:_NAME_DIGITS]}"
        if not (self.folder / name).exists():  # otherwise the same checkpoint again
            draft.rename(self.folder / name)
        _flush(self.folder)
        self._prune(name, checkpoint.step)

    def latest(self) -> tuple[pathlib.Path, Checkpoint] | None:
        """Returns the newest checkpoint that is whole, if any; warns of those that are not."""
        for path in reversed(self._folders()):
            try:
                return path, _verified(path)
            except (errors.UserError, FileNotFoundError, ValueError) as error:
                self._damaged.add(path)
                _LOGGER.warning("The checkpoint %s is damaged and is skipped: %s", path, error)
            except OSError as error:  # of the disk or the network; it may still be whole
                _LOGGER.warning("The checkpoint %s cannot be read and is skipped: %s", path, error)
        return None

    def begin_attempt(self, plan: TrainingPlan, *, step: int) -> bool:
        """Records an attempt; False if the plan failed at this step `MOST_ATTEMPTS` times."""
        path, count = self.folder / _ATTEMPT, 1
        with contextlib.suppress(errors.UserError):  # there is none, or it is of another version
            before = Attempt.read(path)
            if (before.plan, before.step) == (plan, step):
                count += before.count
        if count > MOST_ATTEMPTS:
            return False
        with contextlib.suppress(OSError):  # no disk space: attempts are not counted then
            self.folder.mkdir(parents=True, exist_ok=True)
            Attempt(plan=plan, step=step, count=count).write(path)
        return True

    def forget_attempts(self) -> None:
        """Forgets the attempts, because the training has ended without ending its process."""
        with contextlib.suppress(OSError):
            (self.folder / _ATTEMPT).unlink()

    def clear(self) -> None:
        """Removes all checkpoints and the notes next to them; the user's files there stay."""
        self._remove_drafts()
        for name in (_ATTEMPT, SHORTAGE):
            with contextlib.suppress(OSError):
                (self.folder / name).unlink()
        for path in self._folders():
            shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):  # it holds something else, or does not exist
            self.folder.rmdir()

    def _folders(self) -> list[pathlib.Path]:
        return sorted(self.folder.glob(f"{_PREFIX}*"), key=lambda path: (_step(path), path))

    def _remove_drafts(self) -> None:
        for draft in self.folder.glob(f"{_DRAFT}*"):
            shutil.rmtree(draft, ignore_errors=True)

    def _prune(self, newest: str, step: int) -> None:
        """Keeps the newest few, and checkpoints of a later step that may be whole."""
        earlier = [p for p in self._folders() if p.name != newest and _step(p) <= step]
        for path in {*earlier[: 1 - KEPT], *self._damaged}:
            shutil.rmtree(path, ignore_errors=True)
        self._damaged.clear()


def _step(path: pathlib.Path) -> int:
    digits = path.name.removeprefix(_PREFIX).partition("-")[0]
    return int(digits) if digits.isdecimal() else -1


def _verified(path: pathlib.Path) -> Checkpoint:
    manifest = path / _MANIFEST
    if not path.name.endswith(f"-{_digest(manifest)[:_NAME_DIGITS]}"):
        raise ValueError(f"{_MANIFEST} does not have the digest in the folder's name")
    checkpoint = Checkpoint.read(manifest)
    for name, digest in checkpoint.files.items():
        if _digest(path / name) != digest:
            raise ValueError(f"{name} does not have the digest in {_MANIFEST}")
    return checkpoint


def _digest(path: pathlib.Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _flush(path: pathlib.Path) -> None:
    """Has the operating system write a file or folder to disk; see fsync(2)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
