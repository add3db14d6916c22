"""Reduction: how gradients are summed over replicas, if not as Keras does it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfx_perf.training.keras_api import constant_shapes, gradient_sum
from tfx_perf.training.keras_api.gradient_sum import Gradient
from tfx_perf.training.keras_api.top_k import TopK, is_cut

# Sums what every replica gives it: gradients, and the variables that they are of.
SumUp = Callable[[Sequence[Gradient], Sequence[Any]], Sequence[Gradient]]


class Reduction(NamedTuple):
    """What is sent of gradients.

    Attributes:
        dtype: see `gradient_sum`.
        top_k_ratio: see `top_k`; None: they are sent whole.
    """

    dtype: str | None = None
    top_k_ratio: float | None = None


WHOLE = Reduction()


class Summing:
    """Sums gradients over replicas."""

    def __init__(self, reduction: Reduction, optimizer: Any) -> None:
        """Has summed nothing yet.

        Args:
            reduction: what is sent.
            optimizer: the model's, which keeps what is not sent.
        """
        self._dtype, ratio = reduction
        self._top_k = None if ratio is None else TopK(optimizer, ratio=ratio, dtype=self._dtype)

    def __call__(
        self, gradients: Sequence[Gradient], weights: Sequence[Any], *, sum_up: SumUp
    ) -> list[Gradient]:
        """Returns the sums.

        Args:
            gradients: of this replica.
            weights: their variables.
            sum_up: see `SumUp`.
        """
        if self._top_k is None:
            return self._whole(gradients, weights, sum_up)
        indices = range(len(gradients))
        cut = [index for index in indices if is_cut(gradients[index])]
        whole = [index for index in indices if index not in cut]
        sums: dict[int, Gradient] = {}
        if whole:
            found = self._whole(
                [gradients[index] for index in whole], [weights[index] for index in whole], sum_up
            )
            sums |= zip(whole, found, strict=True)
        if cut:
            found = self._top_k.summed(
                [gradients[index] for index in cut],
                [weights[index] for index in cut],
                finite=_are_finite(list(sums.values())),
            )
            sums |= zip(cut, found, strict=True)
        return [sums[index] for index in indices]

    def _whole(
        self, gradients: Sequence[Gradient], weights: Sequence[Any], sum_up: SumUp
    ) -> list[Gradient]:
        def summed(given: Sequence[Gradient], of: Sequence[Any]) -> list[Gradient]:
            return gradient_sum.summed(given, lambda each: sum_up(each, of), dtype=self._dtype)

        def sum_of(weight: Any) -> Callable[[Gradient], Gradient]:
            return lambda gradient: summed([gradient], [weight])[0]

        changing = [n for n, each in enumerate(gradients) if constant_shapes.may_change(each)]
        others = [n for n in range(len(gradients)) if n not in changing]
        sums: dict[int, Gradient] = {}
        # Applying gradients waits for those of all replicas (`Journal.applying`); a sum does not.
        with tf.control_dependencies(None):
            if others:
                found = summed([gradients[n] for n in others], [weights[n] for n in others])
                sums |= zip(others, found, strict=True)
            if changing:
                found = constant_shapes.summed(
                    [gradients[n] for n in changing],
                    [sum_of(weights[n]) for n in changing],
                )
                sums |= zip(changing, found, strict=True)
        return [sums[n] for n in range(len(gradients))]


def _are_finite(sums: list[Gradient]) -> tf.Tensor:
    tensors = [each for each in tf.nest.flatten(sums, expand_composites=True) if each is not None]
    finite = [
        tf.reduce_all(tf.math.is_finite(each)) for each in tensors if each.dtype.is_floating
    ]
    return tf.reduce_all(tf.stack([tf.constant(True), *finite]))
