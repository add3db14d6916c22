"""Sums of sparse gradients in a loop, where a sum over replicas must keep its shape.

TensorFlow gives a sum its key once per call (`CollectiveReplicaLauncher._next_instance_key`), and
with it the shape that it has in the loop's first step. A sparse gradient has as many rows as the
batch has indices, so that a batch of fewer rows would end the training. So there is one sum for
each of several lengths, and a step pads its gradients to the shortest one that is long enough.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

_LENGTHS = tuple(16 * 4**power for power in range(11))  # up to 16 million rows
_loops: list[None] = []  # being traced, in all threads: each replica is traced in its own


@contextlib.contextmanager
def in_a_loop() -> Iterator[None]:
    """Marks code traced inside the context as running several times in a call."""
    _loops.append(None)
    try:
        yield
    finally:
        _loops.pop()


def may_change(gradient: Any) -> bool:
    """Whether a gradient (may be None) may have another shape in the next step of a call."""
    is_sparse = isinstance(gradient, tf.IndexedSlices)
    return bool(_loops) and is_sparse and gradient.values.shape[0] is None


def summed(
    gradients: Sequence[tf.IndexedSlices],
    sums: Sequence[Callable[[tf.IndexedSlices], tf.IndexedSlices]],
) -> list[tf.IndexedSlices]:
    """Returns the sums of sparse gradients, in replica context; `sums` need equally many rows."""
    context = tf.distribute.get_replica_context()
    index, count = context.replica_id_in_sync_group, context.num_replicas_in_sync
    rows = tf.stack([tf.shape(gradient.indices)[0] for gradient in gradients])
    counts = tf.one_hot(index, count, dtype=tf.float64)[:, None] * tf.cast(rows, tf.float64)
    all_rows = tf.cast(context.all_reduce(tf.distribute.ReduceOp.SUM, counts), tf.int32)
    return [
        _summed(gradient, sum_up, rows=all_rows[:, position])
        for position, (gradient, sum_up) in enumerate(zip(gradients, sums, strict=True))
    ]


def _summed(
    gradient: tf.IndexedSlices,
    sum_up: Callable[[tf.IndexedSlices], tf.IndexedSlices],
    *,
    rows: tf.Tensor,
) -> tf.IndexedSlices:
    """Returns the sum of a gradient, which has `rows` rows on each replica."""

    def filled_up(length: int) -> tuple[tf.Tensor, tf.Tensor]:
        missing = length - tf.shape(gradient.indices)[0]
        values, indices = gradient.values, gradient.indices
        values = tf.pad(values, [[0, missing], *[[0, 0]] * (values.shape.rank - 1)])
        total = sum_up(
            tf.IndexedSlices(
                tf.ensure_shape(values, [length, *values.shape[1:]]),
                tf.ensure_shape(tf.pad(indices, [[0, missing]]), [length]),
                gradient.dense_shape,
            )
        )
        is_given = tf.reshape(tf.sequence_mask(rows, length), [-1])
        return tf.boolean_mask(total.values, is_given), tf.boolean_mask(total.indices, is_given)

    context = tf.distribute.get_replica_context()
    values, indices = context.merge_call(_in_shortest, args=(tf.reduce_max(rows), filled_up))
    return tf.IndexedSlices(values, indices, gradient.dense_shape)


def _in_shortest(strategy: Any, rows: Any, filled_up: Any) -> Any:
    """Runs the branch of the shortest sufficient length, between the replicas.

    Inside a branch, a single replica could not communicate with the others.
    """
    most = strategy.experimental_local_results(rows)[0]  # the same on all

    def of_length(length: int) -> Any:
        return strategy.run(lambda function: function(length), args=(filled_up,))

    branches = [functools.partial(of_length, length) for length in _LENGTHS]
    return tf.switch_case(tf.searchsorted(_LENGTHS, [most])[0], branches)
