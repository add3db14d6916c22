"""Workers train again, from their last checkpoint, after what may pass."""

import dataclasses
import logging
import types
from collections.abc import Callable, Collection, Mapping

from tfx_perf import errors
from tfx_perf.components.processes.worker_failure import WorkerFailure

_QUOTED_LINES = 20

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Cause:
    """Why workers have failed.

    Attributes:
        worker: the index of the one from whose end the others' follow; None: nobody knows which.
        name: of that one; empty likewise.
        message: what became of it, one line.
        is_users: whether that is the message of a `UserError`.
        may_pass: whether the same training may succeed: the worker was killed, say.
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
    """A worker failed.

    Attributes:
        cause: which one, and why.
    """

    def __init__(self, message: str, *, cause: Cause) -> None:
        """Says what happened.

        Args:
            message: all of it.
            cause: see the class.
        """
        super().__init__(message)
        self.cause = cause


def until_done(
    train: Callable[[], None],
    *,
    restarts: int,
    begin_again: Callable[[], None],
    say: Callable[[str], object] = _LOGGER.warning,
) -> tuple[str, ...]:
    """Has workers train; returns what became of the attempts that failed, in sentences.

    Args:
        train: one attempt.
        restarts: how many more there may be.
        begin_again: called before each of these.
        say: is called before each of these, with why.

    Raises:
        WorkersFailedError: the last attempt's, or one that would come again.
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
            begin_again()
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
    """Returns why workers of which one has failed have ended.

    Those that fail later mostly follow from it: they have lost a worker. What a worker's code has
    raised would come again, and so would its exit; a signal may not.

    Args:
        failures: what each of them has reported, by its index.
        endings: of those that have failed, how they have ended; likewise.
        exited: those of them that have ended themselves, by an exit code.
        message: what is known where nothing is of any worker.
        names: of those that are no worker with that index.
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
    title: str, cause: Cause, *, logs: Mapping[int | None, str]
) -> errors.UserError | WorkersFailedError:
    """Returns the error of workers of which one has failed.

    Args:
        title: of all of them.
        cause: why.
        logs: what each has written, by its index.
    """
    if cause.is_users:
        return errors.UserError(cause.message)
    text = f"Expected the workers of {title} to succeed. Received: {cause}."
    if cause.worker is not None:
        lines = logs.get(cause.worker, "It is not there.").splitlines()[-_QUOTED_LINES:]
        text = "\n".join([text, "The end of its log:", *lines])
    return WorkersFailedError(text, cause=cause)
