"""Team: the processes that train together, which have to come to the same decisions.

A worker that acts without the others never ends: every step has them wait for each other. So facts
that one worker knows alone (the time, a signal, a full disk) are asked of all first.
"""

import contextlib
import logging
import os
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

import numpy as np
import tensorflow as tf

from tfx_perf.core import errors, time_limit
from tfx_perf.training.replicas import strategies

_T = TypeVar("_T")

_LOGGER = logging.getLogger(__name__)

# In which workers that fail alike, in tracing say, are all there.
_PATIENCE_SECONDS = 60.0

_GATHERING: weakref.WeakKeyDictionary[Any, Callable[[tf.Tensor], tf.Tensor]] = (
    weakref.WeakKeyDictionary()  # of a strategy, so that it is traced once
)


class TeamError(RuntimeError):
    """The workers cannot go on; they may if all are started again."""

    may_pass = True  # see `isolate`


class LostWorkerError(TeamError):
    """Another worker has ended, or does not answer."""


class ShortOfMemoryError(TeamError):
    """A step did not fit; workers that are started again run it in slices."""


class FailedAloneError(TeamError):
    """A worker failed in a trial in which the others wait; workers started again leave it out."""


_OF_CONNECTIONS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    ConnectionError,
)


def may_pass(error: BaseException) -> bool:
    """Whether workers started again may succeed: one ended, the network failed, or they adapt."""
    return isinstance(error, (TeamError, *_OF_CONNECTIONS))


def is_short_of_memory(error: BaseException) -> bool:
    """Whether a step, or Python, raised an error for lack of memory."""
    return isinstance(error, (tf.errors.ResourceExhaustedError, MemoryError))


def folder_of(index: int, count: int) -> str:
    """Returns the name of a worker's folder in one that all share; empty if it is alone."""
    return f"worker-{index}" if count > 1 else ""


def _gathering(strategy: Any) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a function that gathers numbers, shape [1, any], of all replicas."""

    @tf.function(autograph=False, reduce_retracing=True)
    def gather(numbers: tf.Tensor) -> tf.Tensor:
        everyone = strategy.run(lambda: tf.identity(numbers))
        return strategy.gather(everyone, axis=0)

    return gather


class Team:
    """The workers of a `MultiWorkerMirroredStrategy`; with any other strategy, this process alone.

    Every worker must call its methods, except those of the chief, in the same order.
    """

    def __init__(self, strategy: tf.distribute.Strategy | None = None) -> None:
        """Finds out who the workers are, without asking them; None is this process alone."""
        self._strategy = cast("Any", strategy)
        self.index, self.count = 0, strategies.worker_count(strategy)
        if self.count > 1:
            resolver = self._strategy.cluster_resolver
            chiefs = len(resolver.cluster_spec().as_dict().get("chief", ()))
            is_worker = resolver.task_type == "worker"
            self.index = (resolver.task_id or 0) + (chiefs if is_worker else 0)

    @property
    def is_chief(self) -> bool:
        """Whether this worker does the work of which one is enough."""
        return self.index == 0

    @property
    def folder(self) -> str:
        """This worker's folder; see `folder_of`."""
        return folder_of(self.index, self.count)

    def gathered(self, own: Sequence[int]) -> np.ndarray:
        """Returns int64 numbers of all, [workers or more, numbers]; raises LostWorkerError."""
        if self.count == 1:
            return np.array([own], np.int64)
        if self._strategy not in _GATHERING:
            _GATHERING[self._strategy] = _gathering(weakref.proxy(self._strategy))
        try:
            return _GATHERING[self._strategy](tf.constant([own], tf.int64)).numpy()
        except tf.errors.OpError as error:
            raise LostWorkerError("another worker has ended, or does not answer") from error

    def decides(self, verdict: bool) -> bool:
        """Returns the chief's verdict to all; the others' does not count."""
        return bool(self.gathered([verdict])[0, 0])

    def of_chief(self, number: float) -> float:
        """Returns the chief's number, to the last bit, instead of one's own."""
        bits = int(np.float64(number).view(np.int64))
        return float(self.gathered([bits])[0, 0].view(np.float64))

    def all(self, verdict: bool) -> bool:
        """Returns whether a verdict holds for every worker."""
        return bool(np.all(self.gathered([verdict])))

    def agrees(self, what: str) -> bool:
        """Returns whether all say the same."""
        said = self.gathered([zlib.crc32(what.encode())])
        return bool(np.all(said == said[0]))

    def end_if_alone(self, error: BaseException) -> None:
        """Ends this worker if it alone ran out of memory, in a step that the others wait in.

        Raises FailedAloneError then, so that all are started again; a TeamError is raised as it is.
        """
        if isinstance(error, TeamError):
            raise error
        if self.count > 1 and is_short_of_memory(error):
            raise FailedAloneError(
                f"{errors.in_one_line(error)} on worker {self.index}"
            ) from error

    @contextlib.contextmanager
    def soon(self, error: str) -> Iterator[None]:
        """Ends this process, which failed, if others wait in a step and do not come here soon."""
        if self.count == 1:
            yield
            return
        _LOGGER.warning("Worker %d has failed in a trial: %s", self.index, error)
        with time_limit.ended_after(_PATIENCE_SECONDS, log_path=os.devnull):
            yield

    def do(self, action: Callable[[], _T], *, only_chief: bool = False) -> _T | None:
        """Has everyone act, or the chief only; returns the result here when all have done it.

        Raises TeamError if another worker could not; its own errors are raised as they are.
        """
        found, failure = None, None
        try:
            if self.is_chief or not only_chief:
                found = action()
        except Exception as error:  # the others have to know of it
            failure = error
        succeeded = self.gathered([failure is None])
        if failure is not None:
            raise failure
        if not np.all(succeeded):
            raise TeamError("another worker could not do its part; its log says why")
        return found
