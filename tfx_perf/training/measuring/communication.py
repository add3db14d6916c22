"""Measures how long replicas wait for each other, between gradients and their sum.

Two timestamps in the graph surround each reduction: when all inputs of a replica are computed, and
when all its results have arrived. Neither delays anything, so work that TensorFlow overlaps with
the backward pass does not count.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfx_perf.core import interception
from tfx_perf.core.interception import FitCall
from tfx_perf.training.keras_api import either_keras
from tfx_perf.training.measuring.accounts import CommunicationAccount, ReplicaAccount
from tfx_perf.training.replicas.sync import Sync

_COLUMNS = 2  # seconds, bytes; `_read` adds steps as the third
_NANO = 1e9


class Totals(NamedTuple):
    """Waits and reductions of one process' replicas since it began."""

    first_replica: int  # index of the first one among all
    has_all: bool  # whether no other process has replicas
    wait_time_seconds: tuple[float, ...]  # of each replica
    reduced_bytes: tuple[float, ...]  # of each replica


class CommunicationMeter:
    """Measures reductions in everything that is traced in `metered`.

    The first call of an epoch counts only if epochs have no other: replicas begin it at different
    times, and wait for their first batches. One meter serves all trainings of a process, since one
    may use functions that were traced for another.
    """

    def __init__(self) -> None:
        self._totals: Any = None
        self._replica = threading.local()  # each is traced in a thread of its own
        self._replica_count = 1
        self._before = self._epoch_before = self._starts = self._read(0)

    @contextlib.contextmanager
    def metered(self, call: FitCall) -> Iterator[None]:
        """Adds timestamps to functions that `fit` traces inside; not on GPUs, which lag behind."""
        strategy = call.model.distribute_strategy
        count = strategy.num_replicas_in_sync
        if count == 1 or tf.config.list_physical_devices("GPU"):
            yield
            return
        own_count = max(1, count // Sync(strategy).size)
        if self._totals is None or own_count != self._replica_count:
            self._replica_count = own_count
            self._totals = _new_totals((own_count, _COLUMNS))
        keras_api = either_keras.api_of(call.model)
        replaced = [
            (tf.distribute.ReplicaContext, "all_reduce", self._all_reduce),
            (tf.distribute.ReplicaContext, "all_gather", self._all_gather),
            *((*owned, self._gradient_sum) for owned in keras_api.gradient_sums),
        ]
        with interception.replacing_all(replaced):
            yield

    def on_warm(self, step_count: int) -> None:
        """Counts from here on: the first call and the warm-up are over."""
        self._before, self._starts = self._read(step_count), np.zeros(_COLUMNS + 1)

    def on_epoch_start(self, step_count: int) -> None:
        """Counts separately from here on, before the first call of an epoch."""
        self._epoch_before = self._read(step_count)

    def on_epoch_started(self, step_count: int) -> None:
        """Ends the separate count, after that call."""
        self._starts = self._starts + self._read(step_count) - self._epoch_before

    def totals(self, strategy: tf.distribute.Strategy) -> Totals | None:
        """Returns this process' counts so far, for any thread; None if there are none."""
        if self._totals is None:
            return None
        seconds, sizes, *_ = self._read(0).T
        sync = Sync(strategy)
        return Totals(
            first_replica=sync.rank * self._replica_count,
            has_all=sync.size == 1,
            wait_time_seconds=tuple(seconds.tolist()),
            reduced_bytes=tuple(sizes.tolist()),
        )

    def account(
        self,
        strategy: tf.distribute.Strategy,
        *,
        step_count: int,
        mean_step_time_seconds: float | None,
        epoch_start_seconds: float,
        peak_memory_bytes: int | None,
    ) -> CommunicationAccount | None:
        """Returns all replicas' measurements, None without any; every worker has to call it."""
        if self._totals is None:
            return None
        step_time = mean_step_time_seconds or 0.0
        counted = self._read(step_count) - self._before
        within = counted - self._starts
        counted = within if within[0, -1] > 0 else counted
        steps = counted[0, -1]
        seconds, sizes, _ = counted.T / max(1, steps)
        was_warm = self._before[0, -1] > 0
        is_known = bool(was_warm and steps > 0 and step_time and sizes.all())
        sync = Sync(strategy)
        gathered = sync.all_gather(
            [
                is_known,
                int(step_time * _NANO),
                int(epoch_start_seconds * _NANO),
                peak_memory_bytes or 0,
                *(int(size) for size in sizes),
                *(int(wait * _NANO) for wait in seconds),
            ]
        )
        if not gathered[:, 0].all():
            return None
        return CommunicationAccount(
            step_time_seconds=gathered[:, 1].mean() / _NANO,
            epoch_start_seconds=gathered[:, 2].mean() / _NANO,
            reduced_bytes_per_step=int(gathered[:, 4].max()),
            replicas=tuple(
                ReplicaAccount(
                    worker=worker,
                    wait_time_seconds=wait / _NANO,
                    peak_memory_bytes=int(of_worker[3]) or None,
                )
                for worker, of_worker in enumerate(gathered)
                for wait in of_worker[-self._replica_count :]
            ),
        )

    def _read(self, step_count: int) -> np.ndarray:
        if self._totals is None:
            return np.array([[0.0] * _COLUMNS + [step_count]])
        totals = tf.raw_ops.ReadVariableOp(resource=self._totals, dtype=tf.float64).numpy()
        return np.insert(totals, _COLUMNS, step_count, axis=1)

    def _all_reduce(self, original: Callable[..., Any]) -> Callable[..., Any]:

        def all_reduce(context: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
            return self._timed(value, lambda: original(context, reduce_op, value, options))

        return all_reduce

    def _all_gather(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a replacement for `all_gather`; users' calls count, too."""

        def all_gather(context: Any, value: Any, axis: int, options: Any = None) -> Any:
            return self._timed(value, lambda: original(context, value, axis, options))

        return all_gather

    def _gradient_sum(self, summing: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a replacement for Keras' function or method to sum (gradient, variable) pairs."""

        def gradient_sum(*arguments: Any) -> Any:
            *optimizer, grads_and_vars = arguments
            pairs = list(grads_and_vars)
            return self._timed(_gradients(pairs), lambda: summing(*optimizer, pairs), of=_gradients)

        return gradient_sum

    def _timed(
        self,
        value: Any,
        reduce: Callable[[], Any],
        *,
        of: Callable[[Any], Any] = lambda reduced: reduced,
    ) -> Any:
        """Reduces between two timestamps; `of` returns the tensors of the result."""
        context = tf.distribute.get_replica_context()
        several = context is not None and context.num_replicas_in_sync > 1
        tensors = _tensors(value)
        is_timed = getattr(self._replica, "is_timed", False)
        if tf.executing_eagerly() or not several or is_timed or not tensors:
            return reduce()
        began = _timestamp_after(tensors)
        self._replica.is_timed = True
        try:
            reduced = reduce()
        finally:
            self._replica.is_timed = False
        seconds = _timestamp_after(_tensors(of(reduced))) - began
        index = context.replica_id_in_sync_group % self._replica_count
        with tf.device(self._totals.device):
            tf.raw_ops.ResourceScatterAdd(
                resource=self._totals,
                indices=[index],
                updates=[tf.stack([seconds, _byte_count(tensors)])],
            )
        return reduced


def _gradients(pairs: Any) -> list[Any]:
    return [gradient for gradient, _ in pairs if gradient is not None]


def _new_totals(shape: tuple[int, int]) -> Any:
    """Returns a handle of zeros: a variable that Keras, strategies and savers do not see."""
    with tf.init_scope(), tf.device("CPU:0"):
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float64, shape=shape, debug_name="communication")
        tf.raw_ops.AssignVariableOp(resource=handle, value=tf.zeros(shape, tf.float64))
    return handle


def _tensors(value: Any) -> list[tf.Tensor]:
    """Returns the tensors that can be gradients, not users' Python numbers or counts of rows."""
    parts = tf.nest.flatten(value, expand_composites=True)
    return [each for each in parts if tf.is_tensor(each) and each.dtype.is_floating]


def _timestamp_after(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    with tf.control_dependencies(tensors), tf.device("CPU:0"):
        return tf.timestamp()


def _byte_count(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    sizes = [tf.cast(tf.size(each, tf.int64) * each.dtype.size, tf.float64) for each in tensors]
    return tf.add_n(sizes)  # constants, where shapes are known
