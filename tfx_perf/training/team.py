"""Team: the processes that train together, which have to come to the same decisions.

What one worker does without the others never ends: every step has them wait for each other. So what
a worker knows alone (the time, a signal, a full disk) is asked of all of them first.
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
from tfx_perf.training.measuring import strategies

_T = TypeVar("_T")

_LOGGER = logging.getLogger(__name__)

# In which workers that fail alike, in tracing say, are all there.
_PATIENCE_SECONDS = 60.0

_GATHERING: weakref.WeakKeyDictionary[Any, Callable[[tf.Tensor], tf.Tensor]] = (
    weakref.WeakKeyDictionary()  # of a strategy, so that it is traced once
)


class TeamError(RuntimeError):
    """The workers cannot go on; where all are started again, they may."""

    may_pass = True  # see `isolate`


class LostWorkerError(TeamError):
    """Another worker has ended, or does not answer."""


class ShortOfMemoryError(TeamError):
    """A step did not fit; where all workers are started again, they run it in slices."""


class FailedAloneError(TeamError):
    """A worker failed in a trial in which the others wait; started again, all leave it out."""


_OF_CONNECTIONS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    ConnectionError,
)


def may_pass(error: BaseException) -> bool:
    """Returns whether a training may succeed where all workers are started again after an error.

    It follows from another worker's end, or from the network; or they go on otherwise.
    """
    return isinstance(error, (TeamError, *_OF_CONNECTIONS))


def is_short_of_memory(error: BaseException) -> bool:
    """Returns whether an error is that of a step, or of Python, that has no memory left."""
    return isinstance(error, (tf.errors.ResourceExhaustedError, MemoryError))


def folder_of(index: int, count: int) -> str:
    """Returns the name of a worker's folder in one that all share; empty if it is alone.

    Args:
        index: of the worker.
        count: of all.
    """
    return f"worker-{index}" if count > 1 else ""


def _gathering(strategy: Any) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns what gathers numbers, shape [1, any], of all replicas."""

    @tf.function(autograph=False, reduce_retracing=True)
    def gather(numbers: tf.Tensor) -> tf.Tensor:
        everyone = strategy.run(lambda: tf.identity(numbers))
        return strategy.gather(everyone, axis=0)

    return gather


class Team:
    """The workers of a `MultiWorkerMirroredStrategy`; with any other strategy, this process alone.

    All of its methods but those of the chief are to be called by every worker, in the same order.

    Attributes:
        index: of this worker, from 0.
        count: of all.
    """

    def __init__(self, strategy: tf.distribute.Strategy | None = None) -> None:
        """Finds out who they are, and asks nobody anything yet.

        Args:
            strategy: that the model was built under; None: there is nobody else.
        """
        self._strategy = cast("Any", strategy)
        self.index, self.count = 0, strategies.worker_count(strategy)
        if self.count > 1:
            resolver = self._strategy.cluster_resolver
            chiefs = len(resolver.cluster_spec().as_dict().get("chief", ()))
            is_worker = resolver.task_type == "worker"
            self.index = (resolver.task_id or 0) + (chiefs if is_worker else 0)

    @property
    def is_chief(self) -> bool:
        """Whether this worker does what only one of them has to do."""
        return self.index == 0

    @property
    def folder(self) -> str:
        """Of this worker; see `folder_of`."""
        return folder_of(self.index, self.count)

    def gathered(self, own: Sequence[int]) -> np.ndarray:
        """Returns what all have to say, shape [workers or more, numbers], int64.

        Args:
            own: what this one has; of all as many numbers.

        Raises:
            LostWorkerError: there are not all of them any more.
        """
        if self.count == 1:
            return np.array([own], np.int64)
        if self._strategy not in _GATHERING:
            _GATHERING[self._strategy] = _gathering(weakref.proxy(self._strategy))
        try:
            return _GATHERING[self._strategy](tf.constant([own], tf.int64)).numpy()
        except tf.errors.OpError as error:
            raise LostWorkerError("another worker has ended, or does not answer") from error

    def decides(self, verdict: bool) -> bool:
        """Returns the chief's verdict, so that all do the same; the others' is not asked for."""
        return bool(self.gathered([verdict])[0, 0])

    def of_chief(self, number: float) -> float:
        """Returns what the chief has measured, to the last bit, in the place of one's own."""
        bits = int(np.float64(number).view(np.int64))
        return float(self.gathered([bits])[0, 0].view(np.float64))

    def all(self, verdict: bool) -> bool:
        """Returns whether it holds for every worker."""
        return bool(np.all(self.gathered([verdict])))

    def agrees(self, what: str) -> bool:
        """Returns whether all say the same."""
        said = self.gathered([zlib.crc32(what.encode())])
        return bool(np.all(said == said[0]))

    def end_if_alone(self, error: BaseException) -> None:
        """Has this worker end where it alone has failed, in what the others wait in.

        Memory runs out on one of them; whatever else a step raises, it mostly raises on all.

        Args:
            error: what it has failed with.

        Raises:
            FailedAloneError: it has, so that all have to be started again.
            TeamError: the error, which is that of the whole team.
        """
        if isinstance(error, TeamError):
            raise error
        if self.count > 1 and is_short_of_memory(error):
            raise FailedAloneError(
                f"{errors.in_one_line(error)} on worker {self.index}"
            ) from error

    @contextlib.contextmanager
    def soon(self, error: str) -> Iterator[None]:
        """Ends this process if the others do not come to what is asked of them here.

        They come soon where they have failed, too; else they wait in a step for this one.

        Args:
            error: what this one has failed with.
        """
        if self.count == 1:
            yield
            return
        _LOGGER.warning("Worker %d has failed in a trial: %s", self.index, error)
        with time_limit.ended_after(_PATIENCE_SECONDS, log_path=os.devnull):
            yield

    def do(self, action: Callable[[], _T], *, only_chief: bool = False) -> _T | None:
        """Has everyone do something; returns what came of it here when all have done it.

        Args:
            action: what to do.
            only_chief: whether the others only wait; they get None.

        Raises:
            TeamError: another worker could not; its own errors are raised as they are.
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
