"""Sums gradients over replicas: the constant-shaped ones together, the others each alone."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfx_perf.training.keras_api import constant_shapes, gradient_sum
from tfx_perf.training.keras_api.gradient_sum import Gradient

# Sums what every replica gives it: gradients, and the variables that they are of.
SumUp = Callable[[Sequence[Gradient], Sequence[Any]], Sequence[Gradient]]


def summed(
    gradients: Sequence[Gradient], weights: Sequence[Any], *, sum_up: SumUp, dtype: str | None
) -> list[Gradient]:
    """Returns the sums.

    Args:
        gradients: of this replica.
        weights: their variables.
        sum_up: see `SumUp`.
        dtype: in which they are summed; see `gradient_sum`.
    """

    def summed_of(indices: Sequence[int]) -> list[Gradient]:
        of = [weights[n] for n in indices]
        return gradient_sum.summed(
            [gradients[n] for n in indices], lambda given: sum_up(given, of), dtype=dtype
        )

    def sum_of(weight: Any) -> Callable[[Gradient], Gradient]:
        def sum_one(gradient: Gradient) -> Gradient:
            (total,) = gradient_sum.summed(
                [gradient], lambda given: sum_up(given, [weight]), dtype=dtype
            )
            return total

        return sum_one

    changing = [n for n, each in enumerate(gradients) if constant_shapes.may_change(each)]
    others = [n for n in range(len(gradients)) if n not in changing]
    sums: dict[int, Gradient] = {}
    # Applying gradients waits for those of all replicas (`Journal.applying`); a sum does not.
    with tf.control_dependencies(None):
        if others:
            sums |= zip(others, summed_of(others), strict=True)
        if changing:
            found = constant_shapes.summed(
                [gradients[n] for n in changing], [sum_of(weights[n]) for n in changing]
            )
            sums |= zip(changing, found, strict=True)
    return [sums[n] for n in range(len(gradients))]
