"""Why workers have failed, and whether they train again, from their last checkpoint."""

import dataclasses
import logging
import pathlib
import re
import sys
import time
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar

from tfx_perf.core import errors, records, workers

_PREFIX = "failure-"
_QUOTED_LINES = 20
# How `threading.excepthook` begins.
_THREAD_FAILED = re.compile(r"Exception in thread (.+):$")

_LOGGER = logging.getLogger(__name__)


class WorkerFailure(records.Record):
    """What a worker leaves when it cannot go on: a `Cause`, and when (seconds since 1970)."""

    SCHEMA: ClassVar[str] = "tfx_perf.worker_failure/1"

    worker: int
    seconds: float
    message: str
    is_users: bool
    may_pass: bool

    @classmethod
    def of(cls, error: BaseException, *, worker: int) -> "WorkerFailure":
        """Returns the failure of a worker whose code raised `error`."""
        is_users, cause = isinstance(error, errors.UserError), error
        message = str(error) if is_users else errors.in_one_line(error)
        if isinstance(error, SystemExit):
            is_number = isinstance(error.code, int)
            message = f"ended with exit code {error.code}" if is_number else str(error.code)
            cause = error.__context__ or error
        return cls(
            worker=worker,
            seconds=time.time(),
            message=message,
            is_users=is_users,
            may_pass=_may_pass(cause),
        )

    def leave_in(self, folder: pathlib.Path) -> None:
        """Writes it where `left_in` finds it."""
        self.write(folder / f"{_PREFIX}{self.worker}.json")


def left_in(folder: pathlib.Path) -> dict[int, WorkerFailure]:
    """Returns what workers have left in a folder, by their indices."""
    found = map(WorkerFailure.read, folder.glob(f"{_PREFIX}*.json"))
    return {failure.worker: failure for failure in found}


def forget(folder: pathlib.Path) -> None:
    """Removes what workers have left in a folder, so that others can begin."""
    for path in folder.glob(f"{_PREFIX}*.json"):
        path.unlink(missing_ok=True)


@dataclasses.dataclass(frozen=True)
class Cause:
    """Why workers have failed: the first one (None: unknown), and what became of it, one line.

    `may_pass` tells whether the same training may succeed: the worker was killed, say.
    """

    worker: int | None
    name: str
    message: str
    is_users: bool = False
    may_pass: bool = False

    def __str__(self) -> str:
        """The worker, if it is known, and what became of it, without a full stop."""
        message = " ".join(self.message.split()).rstrip(".")
        return f"{self.name}: {message}" if self.name else message


class WorkersFailedError(errors.MeasurementError):
    """A worker failed; `cause` tells which one, and why."""

    def __init__(self, message: str, *, cause: Cause) -> None:
        super().__init__(message)
        self.cause = cause


def until_done(
    train: Callable[[], None],
    *,
    folder: pathlib.Path,
    restarts: int,
    end: Callable[[], object] = lambda: None,
    say: Callable[[str], object] = _LOGGER.warning,
) -> tuple[str, ...]:
    """Has workers train, again if that may help; returns what failed, or raises the last error.

    Before they begin again, `end` ends those that run; then what all left in a folder is forgotten.
    """
    notes: list[str] = []
    while True:
        try:
            train()
        except WorkersFailedError as error:
            if not error.cause.may_pass or len(notes) == restarts:
                raise
            notes.append(f"the workers were started again after {error.cause}")
            say(f"All workers start again ({len(notes)} of {restarts}). {error}")
            end()
            forget(folder)
        else:
            return tuple(notes)


def cause_of(
    failures: Mapping[int, WorkerFailure],
    endings: Mapping[int, str],
    *,
    exited: Collection[int] = (),
    message: str = "",
    names: Mapping[int, str] = types.MappingProxyType({}),
) -> Cause:
    """Returns why workers have ended, given how those that failed have ended, by index.

    The later ones mostly fail because they have lost a worker. What code has raised would come
    again, and so would an exit of its own (`exited`); a signal may not.
    """
    own = [each for each in failures.values() if not each.may_pass]
    silent = endings.keys() - failures.keys()  # an exit code says it all
    if silent and not own:
        worker = min(silent, key=lambda index: (index in exited, index))
        name = names.get(worker, f"worker {worker}")
        return Cause(worker, name, endings[worker], may_pass=worker not in exited)
    first = min(own or failures.values(), key=lambda failure: failure.seconds, default=None)
    if first is None:
        return Cause(None, "", message, may_pass=True)
    return Cause(
        first.worker,
        names.get(first.worker, f"worker {first.worker}"),
        first.message,
        is_users=first.is_users,
        may_pass=first.may_pass,
    )


def failed(
    title: str, cause: Cause, *, log: str | None
) -> errors.UserError | WorkersFailedError:
    """Returns the error of workers of which one has failed, with the end of its log, if known."""
    if cause.is_users:
        return errors.UserError(cause.message)
    text = f"Expected the workers of {title} to succeed. Received: {cause}."
    if cause.worker is not None:
        lines = ("It is not there." if log is None else log).splitlines()[-_QUOTED_LINES:]
        text = "\n".join([text, "The end of its log:", *lines])
    return WorkersFailedError(text, cause=cause)


def failed_threads(log_folder: pathlib.Path, *, names: Sequence[str]) -> tuple[str, ...]:
    """Returns, and logs, a sentence for each worker with failed threads; that ends no worker."""
    notes = []
    for name in names:
        path = log_folder / workers.log_file(name)
        with path.open(encoding="utf-8", errors="replace") as log:
            threads = sorted({found[1] for line in log if (found := _THREAD_FAILED.match(line))})
        if threads:
            said = f"threads of {name} have failed ({', '.join(threads)}); see {path}"
            _LOGGER.warning("%s.", said[:1].upper() + said[1:])
            notes.append(said)
    return tuple(notes)


def _may_pass(error: BaseException) -> bool:
    if "tensorflow" not in sys.modules:  # then it has lost no other worker
        return False
    from tfx_perf.training.replicas import sync

    return sync.may_pass(error)
