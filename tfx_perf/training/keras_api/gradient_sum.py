"""Sums gradients over replicas in a narrower type, so that less has to be sent."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

Gradient = Any  # a tensor, `tf.IndexedSlices`, or None where a variable has none
SumUp = Callable[[Sequence[Gradient]], Sequence[Gradient]]


def summed(gradients: Sequence[Gradient], sum_up: SumUp, *, dtype: str | None) -> list[Gradient]:
    """Returns the sums over all replicas in the gradients' types, reduced in `dtype` if narrower.

    Infinite and NaN values stay so. float16 has a smaller range: a mean over the replicas beyond
    65,504 becomes infinite, as an overflow of a scaled loss does, and one below 6e-8 becomes 0.
    """
    if dtype is None:
        return list(sum_up(gradients))
    narrow = _Narrow(tf.as_dtype(dtype))
    given = [narrow.narrowed(each) for each in gradients]
    return [
        narrow.widened(total, like=each)
        for each, total in zip(gradients, sum_up(given), strict=True)
    ]


class _Narrow:
    def __init__(self, dtype: tf.DType) -> None:
        self._dtype = dtype
        # What is summed are shares of the mean, so that the sum cannot overflow on the way.
        # bfloat16 has float32's range.
        context = tf.distribute.get_replica_context()
        self._count = context.num_replicas_in_sync if dtype == tf.float16 else 1

    def narrowed(self, gradient: Gradient) -> Gradient:
        if not self._is_wider(gradient):
            return gradient
        if isinstance(gradient, tf.IndexedSlices):
            # Gathered, not added, by an operation that knows no bfloat16: it gets the bits.
            bits = tf.bitcast(tf.cast(gradient.values, self._dtype), tf.float16)
            return tf.IndexedSlices(bits, gradient.indices, gradient.dense_shape)
        return tf.cast(gradient / self._count, self._dtype)

    def widened(self, total: Gradient, *, like: Gradient) -> Gradient:
        if not self._is_wider(like):
            return total
        if isinstance(total, tf.IndexedSlices):
            values = tf.cast(tf.bitcast(total.values, self._dtype), like.dtype)
            return tf.IndexedSlices(values, total.indices, total.dense_shape)
        return tf.cast(total, like.dtype) * self._count

    def _is_wider(self, gradient: Gradient) -> bool:
        if gradient is None or not gradient.dtype.is_floating:
            return False
        return bool(gradient.dtype.size > self._dtype.size)
