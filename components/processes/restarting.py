"""Workers train again, from their last checkpoint, after what may pass."""

import logging
import types
from collections.abc import Callable, Mapping

from tfx_perf import errors
from tfx_perf.components.optimized_trainer.workers.worker_failure import WorkerFailure

_QUOTED_LINES = 20

_LOGGER = logging.getLogger(__name__)


class WorkersFailedError(errors.MeasurementError):
    """A worker failed.

    Attributes:
        cause: which one, and why, in one line.
        may_pass: whether the same training may succeed: the worker was killed, say.
    """

    def __init__(self, message: str, *, cause: str, may_pass: bool) -> None:
        """Says what happened.

        Args:
            message: all of it.
            cause: see the class.
            may_pass: likewise.
        """
        super().__init__(message)
        self.cause, self.may_pass = cause, may_pass


def until_done(
    train: Callable[[], None], *, restarts: int, begin_again: Callable[[], None]
) -> tuple[str, ...]:
    """Has workers train; returns what became of the attempts that failed, in sentences.

    Args:
        train: one attempt.
        restarts: how many more there may be.
        begin_again: called before each of these.

    Raises:
        WorkersFailedError: the last attempt's, or one that would come again.
    """
    notes: list[str] = []
    while True:
        try:
            train()
        except WorkersFailedError as error:
            if not error.may_pass or len(notes) == restarts:
                raise
            notes.append(f"the workers were started again after {error.cause}")
            _LOGGER.warning(
                "All workers start again (%d of %d). %s", len(notes), restarts, error
            )
            begin_again()
        else:
            return tuple(notes)


def failed(
    title: str,
    *,
    failures: Mapping[int, WorkerFailure],
    endings: Mapping[int, str],
    message: str,
    logs: Mapping[int, str],
    names: Mapping[int, str] = types.MappingProxyType({}),
) -> errors.UserError | WorkersFailedError:
    """Returns the error of workers of which one has failed.

    Those that fail later mostly follow from it: they have lost a worker.

    Args:
        title: of all of them.
        failures: what each of them has reported, by its index.
        endings: of those that have failed, how they have ended; likewise.
        message: what else is known.
        logs: what each has written; likewise.
        names: of those that are no worker with that index.
    """
    own = [each for each in failures.values() if not each.may_pass]
    killed = sorted(endings.keys() - failures.keys())
    if own:
        first = min(own, key=lambda failure: failure.seconds)
        if first.is_users:
            return errors.UserError(first.message)
        worker, cause, may_pass = first.worker, first.message, False
    elif killed:  # or it never came so far as to report something
        worker, cause, may_pass = killed[0], endings[killed[0]], True
    elif failures:
        lost = min(failures.values(), key=lambda failure: failure.seconds)
        worker, cause, may_pass = lost.worker, lost.message, True
    else:
        worker, cause, may_pass = 0, message, False
    cause, name = " ".join(cause.split()).rstrip("."), names.get(worker, f"worker {worker}")
    lines = "\n".join(logs.get(worker, "It is not there.").splitlines()[-_QUOTED_LINES:])
    return WorkersFailedError(
        f"Expected the workers of {title} to succeed. Received: {name}: {cause}.\n"
        f"The end of its log:\n{lines}",
        cause=f"{name}: {cause}",
        may_pass=may_pass,
    )
