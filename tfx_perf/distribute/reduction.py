"""Sums gradients over replicas: those of constant shape together, each of the others alone."""

import contextlib
import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfx_perf.core import errors, interception
from tfx_perf.training.keras_api import constant_shapes
from tfx_perf.training.keras_api.base_api import KerasApi, optimizers

Gradient = Any  # a tensor, `tf.IndexedSlices`, or None where a variable has none
# Sums over all replicas, given a replica's gradients and their variables.
SumUp = Callable[[Sequence[Gradient], Sequence[Any]], Sequence[Gradient]]


def summed(
    gradients: Sequence[Gradient], weights: Sequence[Any], *, sum_up: SumUp, dtype: str | None
) -> list[Gradient]:
    """Returns the sums of a replica's gradients, computed in `dtype` as by `narrow_sum`."""

    def sum_all(given: Sequence[Gradient], of: Sequence[Any]) -> list[Gradient]:
        return narrow_sum(given, lambda narrowed: sum_up(narrowed, of), dtype=dtype)

    def sum_one(weight: Any, gradient: Gradient) -> Gradient:
        (total,) = sum_all([gradient], [weight])
        return total

    changing = [n for n, each in enumerate(gradients) if constant_shapes.may_change(each)]
    others = [n for n in range(len(gradients)) if n not in changing]
    sums: dict[int, Gradient] = {}
    if others:
        totals = sum_all([gradients[n] for n in others], [weights[n] for n in others])
        sums |= zip(others, totals, strict=True)
    if changing:
        totals = constant_shapes.summed(
            [gradients[n] for n in changing],
            [functools.partial(sum_one, weights[n]) for n in changing],
        )
        sums |= zip(changing, totals, strict=True)
    return [sums[n] for n in range(len(gradients))]


def in_tf_keras(
    model: Any, keras_api: KerasApi, *, dtype: str | None
) -> contextlib.AbstractContextManager[None]:
    """Returns a context in which tf_keras sums gradients in `dtype`; UserError if it cannot."""
    legacy = importlib.import_module("tf_keras").optimizers.legacy.Optimizer
    for optimizer in optimizers(model) if dtype else ():
        if isinstance(optimizer, legacy):
            raise errors.UserError(
                "Expected an optimizer that has its gradients summed by tf_keras, to send less "
                f"of them. Received: legacy.{type(optimizer).__name__}, which sums them "
                "itself. Take the one of tf_keras.optimizers, or leave "
                "distribution.reduction_dtype out."
            )

    def summed_by_us(original: Callable[..., Any]) -> Callable[..., Any]:
        def sum_gradients(grads_and_vars: Any) -> Any:
            pairs = list(grads_and_vars)
            gradients, variables = [each for each, _ in pairs], [each for _, each in pairs]

            def sum_up(given: Any, weights: Any) -> Any:
                return [total for total, _ in original(zip(given, weights, strict=True))]

            sums = summed(gradients, variables, sum_up=sum_up, dtype=dtype)
            return list(zip(sums, variables, strict=True))

        return sum_gradients

    own_sum, _ = keras_api.gradient_sums
    return interception.replacing(*own_sum, summed_by_us)


def narrow_sum(
    gradients: Sequence[Gradient],
    sum_up: Callable[[Sequence[Gradient]], Sequence[Gradient]],
    *,
    dtype: str | None,
) -> list[Gradient]:
    """Returns the sums over all replicas in the gradients' types, reduced in `dtype` if narrower.

    Infinite and NaN values stay so. float16 has a smaller range: a mean over the replicas beyond
    65,504 becomes infinite, as an overflow of a scaled loss does, and one below 6e-8 becomes 0.
    """
    if dtype is None:
        return list(sum_up(gradients))
    narrow = tf.as_dtype(dtype)
    # In float16, gradients are divided by the replica count first, so that no partial sum
    # overflows. bfloat16 has float32's range.
    context = tf.distribute.get_replica_context()
    divisor = context.num_replicas_in_sync if narrow == tf.float16 else 1

    def narrowed(gradient: Gradient) -> Gradient:
        if not _is_wider(gradient, narrow):
            return gradient
        if isinstance(gradient, tf.IndexedSlices):
            # Gathered, not added, by an operation without bfloat16, which gets the bits instead.
            bits = tf.bitcast(tf.cast(gradient.values, narrow), tf.float16)
            return tf.IndexedSlices(bits, gradient.indices, gradient.dense_shape)
        return tf.cast(gradient / divisor, narrow)

    def widened(total: Gradient, like: Gradient) -> Gradient:
        if not _is_wider(like, narrow):
            return total
        if isinstance(total, tf.IndexedSlices):
            values = tf.cast(tf.bitcast(total.values, narrow), like.dtype)
            return tf.IndexedSlices(values, total.indices, total.dense_shape)
        return tf.cast(total, like.dtype) * divisor

    sums = sum_up([narrowed(each) for each in gradients])
    return [widened(total, each) for total, each in zip(sums, gradients, strict=True)]


def _is_wider(gradient: Gradient, dtype: tf.DType) -> bool:
    if gradient is None or not gradient.dtype.is_floating:
        return False
    return bool(gradient.dtype.size > dtype.size)
