"""Sums gradients over replicas: the constant-shaped ones together, the others each alone."""

import contextlib
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfx_perf.core import errors, interception
from tfx_perf.training.keras_api import constant_shapes, gradient_sum
from tfx_perf.training.keras_api.base_api import KerasApi, optimizers
from tfx_perf.training.keras_api.gradient_sum import Gradient

# Sums what every replica gives it: gradients, and the variables that they are of.
SumUp = Callable[[Sequence[Gradient], Sequence[Any]], Sequence[Gradient]]


def summed(
    gradients: Sequence[Gradient], weights: Sequence[Any], *, sum_up: SumUp, dtype: str | None
) -> list[Gradient]:
    """Returns the sums of a replica's gradients, computed in `dtype` (see `gradient_sum`)."""

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


def of_tf_keras(
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

    def summed_by_us(own: Callable[..., Any]) -> Callable[..., Any]:
        def sum_gradients(grads_and_vars: Any) -> Any:
            pairs = list(grads_and_vars)
            gradients, variables = [each for each, _ in pairs], [each for _, each in pairs]

            def sum_up(given: Any, weights: Any) -> Any:
                return [total for total, _ in own(zip(given, weights, strict=True))]

            sums = summed(gradients, variables, sum_up=sum_up, dtype=dtype)
            return list(zip(sums, variables, strict=True))

        return sum_gradients

    own_sum, _ = keras_api.gradient_sums
    return interception.replacing(*own_sum, summed_by_us)
