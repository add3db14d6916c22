"""WorkerFailure: why one of several workers ended."""

import pathlib
import sys
import time
from typing import ClassVar

from tfx_perf import errors, records

_PREFIX = "failure-"


class WorkerFailure(records.Record):
    """What a worker leaves when it cannot go on.

    Attributes:
        worker: its index.
        seconds: when, since 1970.
        message: one line.
        is_users: whether the message is that of a `UserError`.
        may_pass: whether it need not come again where all are started again; see `team.may_pass`.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.worker_failure/1"

    worker: int
    seconds: float
    message: str
    is_users: bool
    may_pass: bool

    @classmethod
    def of(cls, error: BaseException, *, worker: int) -> "WorkerFailure":
        """Returns the failure of a worker that raised something.

        Args:
            error: what it raised.
            worker: its index.
        """
        is_users = isinstance(error, errors.UserError)
        return cls(
            worker=worker,
            seconds=time.time(),
            message=str(error) if is_users else errors.in_one_line(error),
            is_users=is_users,
            may_pass=_may_pass(error),
        )

    @classmethod
    def of_exit(cls, exited: SystemExit, *, worker: int) -> "WorkerFailure":
        """Returns the failure of a worker whose code has ended it on purpose.

        That would come again, unless it was the answer to an error that need not.

        Args:
            exited: what the code has raised.
            worker: its index.
        """
        code = exited.code
        return cls(
            worker=worker,
            seconds=time.time(),
            message=f"ended with exit code {code}" if isinstance(code, int) else str(code),
            is_users=False,
            may_pass=exited.__context__ is not None and _may_pass(exited.__context__),
        )

    @classmethod
    def told(cls, message: str, *, worker: int) -> "WorkerFailure":
        """Returns the failure of a worker that has ended with a message, and may succeed again.

        Args:
            message: one line.
            worker: its index.
        """
        return cls(
            worker=worker, seconds=time.time(), message=message, is_users=False, may_pass=True
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


def _may_pass(error: BaseException) -> bool:
    if "tensorflow" not in sys.modules:  # then it has lost no other worker
        return False
    from tfx_perf.training import team

    return team.may_pass(error)
