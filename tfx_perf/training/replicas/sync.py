"""Sync: communication between the workers of a training, so that they make the same decisions.

A worker that acts without the others hangs: in every step, workers wait for each other. So facts
that only one worker knows (the time, a signal, a full disk) are first collected from all.
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
_Number = TypeVar("_Number", bool, float)

_LOGGER = logging.getLogger(__name__)

# Enough for all workers that fail alike, e.g. in tracing, to reach the same place.
_PATIENCE_SECONDS = 60.0

_GATHERING: weakref.WeakKeyDictionary[Any, Callable[[tf.Tensor], tf.Tensor]] = (
    weakref.WeakKeyDictionary()  # by strategy, so that each is traced once
)


class SyncError(RuntimeError):
    """The workers cannot continue; they may if all are restarted."""

    may_pass = True  # see `isolate` and `failure`


class LostWorkerError(SyncError):
    """Another worker has ended or does not answer."""


class ShortOfMemoryError(SyncError):
    """A step did not fit into memory; restarted workers run it in slices."""


class FailedAloneError(SyncError):
    """A worker failed in a trial in which the others wait; restarted workers skip the trial."""


def folder_of(index: int, count: int) -> str:
    """Returns the name of a worker's folder inside a shared one; empty if it is alone."""
    return f"worker-{index}" if count > 1 else ""


def _gathering(strategy: Any) -> Callable[[tf.Tensor], tf.Tensor]:
    @tf.function(autograph=False, reduce_retracing=True)
    def gather(numbers: tf.Tensor) -> tf.Tensor:
        everyone = strategy.run(lambda: tf.identity(numbers))
        return strategy.gather(everyone, axis=0)

    return gather


class Sync:
    """The workers of a `MultiWorkerMirroredStrategy`; with any other strategy, this process alone.

    `rank` is this worker's index, and `size` how many there are. Every worker must call the methods
    in the same order, as each waits for all.
    """

    def __init__(self, strategy: tf.distribute.Strategy | None = None) -> None:
        """Finds the workers without communicating with them; None is this process alone."""
        self._strategy = cast("Any", strategy)
        self.rank, self.size = 0, strategies.worker_count(strategy)
        if self.size > 1:
            resolver = self._strategy.cluster_resolver
            chiefs = len(resolver.cluster_spec().as_dict().get("chief", ()))
            is_worker = resolver.task_type == "worker"
            self.rank = (resolver.task_id or 0) + (chiefs if is_worker else 0)

    @property
    def is_chief(self) -> bool:
        """Whether this worker does the work that only one worker should do."""
        return self.rank == 0

    def all_gather(self, numbers: Sequence[int]) -> np.ndarray:
        """Returns int64 [workers or more, numbers] from all workers; raises LostWorkerError."""
        if self.size == 1:
            return np.array([numbers], np.int64)
        if self._strategy not in _GATHERING:
            _GATHERING[self._strategy] = _gathering(weakref.proxy(self._strategy))
        try:
            return _GATHERING[self._strategy](tf.constant([numbers], tf.int64)).numpy()
        except tf.errors.OpError as error:
            raise LostWorkerError("another worker has ended, or does not answer") from error

    def broadcast(self, number: _Number) -> _Number:
        """Returns the chief's bool, or its float to the last bit; other workers' are ignored."""
        bits = int(np.float64(number).view(np.int64))
        return type(number)(self.all_gather([bits])[0, 0].view(np.float64))

    def all_equal(self, value: object) -> bool:
        """Returns whether the values of all workers are equal as strings."""
        checksums = self.all_gather([zlib.crc32(str(value).encode())])
        return bool(np.all(checksums == checksums[0]))

    def barrier(self, action: Callable[[], _T], *, chief_only: bool = False) -> _T | None:
        """Runs `action` on all workers, or the chief only; returns its result once all are done.

        Raises SyncError if it failed on another worker; an error of this one is raised as it is.
        """
        result, failure = None, None
        try:
            if self.is_chief or not chief_only:
                result = action()
        except Exception as error:  # the others must learn of it
            failure = error
        succeeded = self.all_gather([failure is None])
        if failure is not None:
            raise failure
        if not np.all(succeeded):
            raise SyncError("another worker could not do its part; its log says why")
        return result

    @contextlib.contextmanager
    def after(self, error: BaseException) -> Iterator[None]:
        """Ends this process, which failed, if the others do not reach the same place soon.

        They wait in the step that failed here, or have failed as well. Raises FailedAloneError if
        this worker ran out of memory, so that all are restarted; reraises a SyncError.
        """
        if isinstance(error, SyncError):
            raise error
        if self.size == 1:
            yield
            return
        reason = errors.in_one_line(error)
        if errors.is_short_of_memory(error):
            raise FailedAloneError(f"{reason} on worker {self.rank}") from error
        _LOGGER.warning("Worker %d has failed in a trial: %s", self.rank, reason)
        with time_limit.ended_after(_PATIENCE_SECONDS, log_path=os.devnull):
            yield
