"""Why workers have failed, and whether they train again from their last checkpoint."""

import logging
import pathlib
import re
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar

from tfx_perf.core import errors, records, workers

_PREFIX = "failure-"
_QUOTED_LINES = 20
# Begins what `threading.excepthook` prints.
_THREAD_FAILED = re.compile(r"Exception in thread (.+):$")

_LOGGER = logging.getLogger(__name__)


class WorkerFailure(records.Record):
    """Why a worker failed; the worker leaves it in a folder for the process that started it.

    Attributes:
        name: the worker's, e.g. `worker 0`; empty if the worker is not known.
        message: how it failed.
        is_users: whether the user has to fix the cause.
        may_pass: whether the same training may succeed if repeated: the worker was killed, say.
        seconds: time of the failure, since 1970.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.worker_failure/2"

    name: str
    message: str
    is_users: bool = False
    may_pass: bool = False
    seconds: float = 0.0

    @classmethod
    def of(cls, error: BaseException, *, name: str) -> "WorkerFailure":
        """Returns the failure of a worker that raised; its code may have changed `TF_CONFIG`."""
        is_users, cause = isinstance(error, errors.UserError), error
        message = str(error) if is_users else errors.in_one_line(error)
        if isinstance(error, SystemExit):
            is_number = isinstance(error.code, int)
            message = f"ended with exit code {error.code}" if is_number else str(error.code)
            cause = error.__context__ or error
        return cls(
            name=name,
            message=message,
            is_users=is_users,
            may_pass=may_pass(cause),
            seconds=time.time(),
        )

    def __str__(self) -> str:
        """The worker, if it is known, and how it failed, in one line without a period."""
        message = " ".join(self.message.split()).rstrip(".")
        return f"{self.name}: {message}" if self.name else message

    def leave_in(self, folder: pathlib.Path) -> None:
        """Writes the failure where `left_in` finds it."""
        self.write(folder / f"{_PREFIX}{self.name}.json")


def left_in(folder: pathlib.Path) -> dict[str, WorkerFailure]:
    """Returns the failures that workers have left in a folder, by worker name."""
    failures = map(WorkerFailure.read, folder.glob(f"{_PREFIX}*.json"))
    return {failure.name: failure for failure in failures}


def forget(folder: pathlib.Path) -> None:
    """Removes the failures that workers have left in a folder, so that others can begin."""
    for path in folder.glob(f"{_PREFIX}*.json"):
        path.unlink(missing_ok=True)


class WorkersFailedError(errors.MeasurementError):
    """A worker failed; `cause` says which one, and why."""

    def __init__(self, message: str, *, cause: WorkerFailure) -> None:
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
    """Has workers train, again if that may help; returns the failures, or raises the last error.

    Before they begin again, `end` ends running workers, and failures in `folder` are removed.
    """
    notes: list[str] = []
    while True:
        try:
            train()
        except WorkersFailedError as error:
            if not error.cause.may_pass or len(notes) == restarts:
                raise
            notes.append(f"the workers were started again after {error.cause}")
            say(f"Restarting all workers ({len(notes)} of {restarts}). {error}")
            end()
            forget(folder)
        else:
            return tuple(notes)


def cause_of(
    failures: Mapping[str, WorkerFailure],
    endings: Mapping[str, str],
    *,
    exited: Collection[str] = (),
    message: str = "",
) -> WorkerFailure:
    """Returns why workers have failed, given the endings of failed workers, by name.

    Later ones mostly fail because they have lost a worker. An error that code raises would recur,
    and so would an exit of the worker itself (`exited`); a signal may not.
    """
    certain = [each for each in failures.values() if not each.may_pass]
    silent = [name for name in endings if name not in failures]  # only their endings are known
    if silent and not certain:
        name = min(silent, key=lambda each: each in exited)
        return WorkerFailure(name=name, message=endings[name], may_pass=name not in exited)
    unknown = WorkerFailure(name="", message=message, may_pass=True)
    return min(certain or failures.values(), key=lambda each: each.seconds, default=unknown)


def failed(
    title: str, cause: WorkerFailure, *, log: str | None
) -> errors.UserError | WorkersFailedError:
    """Returns the error for a failed worker, with the end of its log if the worker is known."""
    if cause.is_users:
        return errors.UserError(cause.message)
    text = f"Expected the workers of {title} to succeed. Received: {cause}."
    if cause.name:
        lines = ("It does not exist." if log is None else log).splitlines()[-_QUOTED_LINES:]
        text = "\n".join([text, "The end of its log:", *lines])
    return WorkersFailedError(text, cause=cause)


def failed_threads(log_folder: pathlib.Path, *, names: Sequence[str]) -> tuple[str, ...]:
    """Returns and logs a sentence for each worker with failed threads, which end no worker."""
    notes = []
    for name in names:
        path = log_folder / workers.log_file(name)
        with path.open(encoding="utf-8", errors="replace") as log:
            threads = sorted({match[1] for line in log if (match := _THREAD_FAILED.match(line))})
        if threads:
            sentence = f"threads of {name} have failed ({', '.join(threads)}); see {path}"
            _LOGGER.warning("%s.", sentence[:1].upper() + sentence[1:])
            notes.append(sentence)
    return tuple(notes)


def may_pass(error: BaseException) -> bool:
    """Whether restarted workers may succeed: one ended, the network failed, or they adapt."""
    if "tensorflow" not in sys.modules:  # then it cannot have lost another worker
        return False
    return errors.is_of_connection(error) or getattr(error, "may_pass", False)
