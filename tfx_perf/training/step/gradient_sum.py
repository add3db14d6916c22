"""GradientSum: adds up gradients over the turns of a `tf.while_loop`."""

from typing import Any

import tensorflow as tf

Gradients = list[Any]  # tf.Tensor, tf.IndexedSlices or None
State = list[Any]  # a loop variable


class GradientSum:
    """The sum of gradients that all have the structure of the first ones.

    Sparse gradients are joined and not made dense: they come out as the whole batch would
    have given them, row for row, so that what an optimizer or its clipping does with repeated
    indices stays the same.
    """

    def __init__(self, first: Gradients, *, terms: tf.Tensor) -> None:
        """Begins a sum.

        Args:
            first: the first term.
            terms: how many there will be, a scalar of int32.
        """
        self._first = first
        self.start: State = [_begin(gradient, terms) for gradient in first]

    @staticmethod
    def add(state: State, gradients: Gradients, *, index: tf.Tensor) -> State:
        """Returns the state with the term of that index, counted from 0, added."""
        return [
            _add(sum_, gradient, index) for sum_, gradient in zip(state, gradients, strict=True)
        ]

    def result(self, state: State) -> Gradients:
        """Returns the sum."""
        return [_end(sum_, first) for sum_, first in zip(state, self._first, strict=True)]


def _begin(gradient: Any, terms: tf.Tensor) -> Any:
    if gradient is None:
        return ()
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient

    def array(part: tf.Tensor) -> tf.TensorArray:
        shape = [None, *part.shape[1:]]
        return tf.TensorArray(part.dtype, terms, infer_shape=False, element_shape=shape)

    arrays = array(gradient.values), array(gradient.indices)
    return _add(arrays, gradient, tf.constant(0))


def _add(sum_: Any, gradient: Any, index: tf.Tensor) -> Any:
    if gradient is None:
        return ()
    if not isinstance(gradient, tf.IndexedSlices):
        return sum_ + gradient
    values, indices = sum_
    return values.write(index, gradient.values), indices.write(index, gradient.indices)


def _end(sum_: Any, first: Any) -> Any:
    if first is None:
        return None
    if not isinstance(first, tf.IndexedSlices):
        return sum_
    values, indices = sum_
    return tf.IndexedSlices(values.concat(), indices.concat(), first.dense_shape)
