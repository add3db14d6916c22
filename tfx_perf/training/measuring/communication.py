"""What replicas wait for each other: the part of a step between gradients and their sum.

Two timestamps in the graph stand around each reduction: when all that a replica gives is there,
and when all that it gets is there. Neither holds anything up, so that what TensorFlow overlaps
with the backward pass does not count.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfx_perf.core import interception
from tfx_perf.training.keras_api.base_api import KerasApi
from tfx_perf.training.measuring.accounts import CommunicationAccount, ReplicaAccount
from tfx_perf.training.team import Team

_COLUMNS = 2  # seconds, bytes; of what is read, steps are the third
_NANO = 1e9


class CallObserver:
    """Is told after how many steps figures begin or cease to count; does nothing."""

    def on_warm(self, step_count: int) -> None:
        """Is called once the first call and the warm-up are over."""

    def on_epoch_start(self, step_count: int) -> None:
        """Is called before the first call of an epoch."""

    def on_epoch_started(self, step_count: int) -> None:
        """Is called after it."""


class Totals(NamedTuple):
    """What the replicas of one process have waited for and given since it began.

    Attributes:
        first_replica: index of its first replica among all.
        has_all: whether there are no others.
        wait_time_seconds: of each replica; see `ReplicaAccount`.
        reduced_bytes: of each replica.
    """

    first_replica: int
    has_all: bool
    wait_time_seconds: tuple[float, ...]
    reduced_bytes: tuple[float, ...]


class CommunicationMeter(CallObserver):
    """Measures reductions in everything that is traced in `metered`.

    The first call of an epoch counts only where epochs have no other: replicas begin it apart, and
    wait for their first batches.

    One serves all trainings of a process, since what is traced for one may be used by another.
    """

    def __init__(self) -> None:
        """Has measured nothing yet."""
        self._totals: Any = None
        self._replica = threading.local()  # each is traced in a thread of its own
        self._replica_count = 1
        self._before = self._epoch_before = self._starts = self._read(0)

    @contextlib.contextmanager
    def metered(self, strategy: tf.distribute.Strategy, keras_api: KerasApi) -> Iterator[None]:
        """Adds the timestamps to what is traced for a strategy while the context lasts.

        Accelerators compute what the host has long gone past, so that they have none.

        Args:
            strategy: that the model was built under.
            keras_api: the model's.
        """
        count = strategy.num_replicas_in_sync
        if count == 1 or tf.config.list_physical_devices("GPU"):
            yield
            return
        own_count = max(1, count // Team(strategy).count)
        if self._totals is None or own_count != self._replica_count:
            self._replica_count = own_count
            self._totals = _new_totals((own_count, _COLUMNS))
        with contextlib.ExitStack() as undo:
            for owner, name, make in (
                (tf.distribute.ReplicaContext, "all_reduce", self._all_reduce),
                (tf.distribute.ReplicaContext, "all_gather", self._all_gather),
                *((*owned, self._gradient_sum) for owned in keras_api.gradient_sums),
            ):
                undo.enter_context(interception.replacing(owner, name, make))
            yield

    def on_warm(self, step_count: int) -> None:
        """Counts from here on.

        Args:
            step_count: steps of the training so far.
        """
        self._before, self._starts = self._read(step_count), np.zeros(_COLUMNS + 1)

    def on_epoch_start(self, step_count: int) -> None:
        """Counts apart from here on."""
        self._epoch_before = self._read(step_count)

    def on_epoch_started(self, step_count: int) -> None:
        """Has counted apart up to here."""
        self._starts = self._starts + self._read(step_count) - self._epoch_before

    def totals(self, strategy: tf.distribute.Strategy) -> Totals | None:
        """Returns what this process has counted by now; None if that is nothing.

        Other threads may ask. Of a call of the train function that runs, a part is in it.

        Args:
            strategy: see `metered`.
        """
        if self._totals is None:
            return None
        seconds, sizes, *_ = self._read(0).T
        team = Team(strategy)
        return Totals(
            first_replica=team.index * self._replica_count,
            has_all=team.count == 1,
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
        """Returns what all replicas have measured; None if that is nothing.

        Every worker has to call it.

        Args:
            strategy: see `metered`.
            step_count: of the training.
            mean_step_time_seconds: after warm-up, within epochs; None if the training was too
                short.
            epoch_start_seconds: what epochs' first calls add to it.
            peak_memory_bytes: of this process; None if unknown.
        """
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
        team = Team(strategy)
        said = team.gathered(
            [
                is_known,
                int(step_time * _NANO),
                int(epoch_start_seconds * _NANO),
                peak_memory_bytes or 0,
                *(int(size) for size in sizes),
                *(int(wait * _NANO) for wait in seconds),
            ]
        )
        if not said[:, 0].all():
            return None
        return CommunicationAccount(
            step_time_seconds=said[:, 1].mean() / _NANO,
            epoch_start_seconds=said[:, 2].mean() / _NANO,
            reduced_bytes_per_step=int(said[:, 4].max()),
            replicas=tuple(
                ReplicaAccount(
                    worker=worker,
                    wait_time_seconds=wait / _NANO,
                    peak_memory_bytes=int(own[3]) or None,
                )
                for worker, own in enumerate(said)
                for wait in own[-self._replica_count :]
            ),
        )

    def _read(self, step_count: int) -> np.ndarray:
        """Returns seconds and bytes of each replica of this process, and the steps."""
        if self._totals is None:
            return np.array([[0.0] * _COLUMNS + [step_count]])
        found = tf.raw_ops.ReadVariableOp(resource=self._totals, dtype=tf.float64).numpy()
        return np.insert(found, _COLUMNS, step_count, axis=1)

    def _all_reduce(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """Returns what stands in the place of the replica context's method."""

        def all_reduce(context: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
            return self._timed(value, lambda: own(context, reduce_op, value, options))

        return all_reduce

    def _all_gather(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """Likewise; what users gather counts, too."""

        def all_gather(context: Any, value: Any, axis: int, options: Any = None) -> Any:
            return self._timed(value, lambda: own(context, value, axis, options))

        return all_gather

    def _gradient_sum(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """Returns what stands in the place of Keras' function of (gradient, variable) pairs.

        Where that is a method, its optimizer comes before them.
        """

        def gradient_sum(*arguments: Any) -> Any:
            *optimizer, grads_and_vars = arguments
            pairs = list(grads_and_vars)
            return self._timed(_gradients(pairs), lambda: own(*optimizer, pairs), of=_gradients)

        return gradient_sum

    def _timed(
        self,
        value: Any,
        reduce: Callable[[], Any],
        *,
        of: Callable[[Any], Any] = lambda reduced: reduced,
    ) -> Any:
        """Reduces, between two timestamps; what this reduces in turn has none of its own.

        Args:
            value: of this replica.
            reduce: makes something of the values of all.
            of: returns the tensors of that.
        """
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
    """Returns a handle of zeros: of a variable that is none to Keras, strategies and savers."""
    with tf.init_scope(), tf.device("CPU:0"):
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float64, shape=shape, debug_name="communication")
        tf.raw_ops.AssignVariableOp(resource=handle, value=tf.zeros(shape, tf.float64))
    return handle


def _tensors(value: Any) -> list[tf.Tensor]:
    """Returns those that gradients are made of: a user may reduce numbers, and rows are counted."""
    found = tf.nest.flatten(value, expand_composites=True)
    return [each for each in found if tf.is_tensor(each) and each.dtype.is_floating]


def _timestamp_after(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns when all tensors are there, in seconds."""
    with tf.control_dependencies(tensors), tf.device("CPU:0"):
        return tf.timestamp()


def _byte_count(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns what tensors hold, a scalar of float64."""
    sizes = [tf.cast(tf.size(each, tf.int64) * each.dtype.size, tf.float64) for each in tensors]
    return tf.add_n(sizes)  # constants, where shapes are known
