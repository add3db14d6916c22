"""tf_keras' Adam for embeddings that several workers update at once, none waiting for another.

tf_keras leaves the order of both moments to chance: a worker may read the first moment of a row
while another updates it, and a second moment that is still 0, which throws the row by up to 1 /
epsilon. Here the second moment is written before the first, and read after it.
"""

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfx_perf.core import interception
from tfx_perf.training.keras_api import slots


def is_orderable(optimizer: Any) -> bool:
    """Returns whether `ordered` changes the updates of an optimizer."""
    optimizers = importlib.import_module("tf_keras.optimizers")
    known = (optimizers.Adam.update_step, optimizers.AdamW.update_step)
    found = getattr(type(optimizer), "update_step", None)  # legacy ones have none
    return found in known and not optimizer.amsgrad


@contextlib.contextmanager
def ordered(optimizer: Any) -> Iterator[None]:
    """Orders the moments in what is traced in the context, with the same results, if orderable."""
    if not is_orderable(optimizer):
        yield
        return

    def ordering(own: Callable[..., None]) -> Callable[..., None]:
        def update_step(gradient: Any, variable: Any) -> None:
            if isinstance(gradient, tf.IndexedSlices):
                _update(optimizer, gradient, variable)
            else:
                own(gradient, variable)

        return update_step

    with interception.replacing(optimizer, "update_step", ordering):
        yield


def _update(optimizer: Any, gradient: tf.IndexedSlices, variable: Any) -> None:
    """Updates a sparse gradient as Adam and AdamW do: Kingma and Ba (2014), before section 2.1."""
    first, second = slots.adam_moments(optimizer, variable)
    rate, count, beta_1, beta_2 = (
        tf.cast(value, variable.dtype)
        for value in (
            optimizer.learning_rate, optimizer.iterations + 1, optimizer.beta_1, optimizer.beta_2,
        )
    )  # fmt: skip
    scale = rate * tf.sqrt(1 - beta_2**count) / (1 - beta_1**count)
    epsilon = optimizer.epsilon
    if getattr(optimizer, "adaptive_epsilon", False):
        epsilon *= tf.sqrt(1 - beta_2**count)
    # In Python's digits, as there.
    new_1, new_2 = 1 - optimizer.beta_1, 1 - optimizer.beta_2
    second.assign_add(-second * new_2)
    written = second.scatter_add(_slices(tf.square(gradient.values) * new_2, gradient))
    with tf.control_dependencies([written]):
        first.assign_add(-first * new_1)
        first.scatter_add(_slices(gradient.values * new_1, gradient))
        numerator = first.read_value() * scale
    with tf.control_dependencies([numerator]):
        variable.assign_sub(numerator / (tf.sqrt(second.read_value()) + epsilon))


def _slices(values: tf.Tensor, like: tf.IndexedSlices) -> tf.IndexedSlices:
    return tf.IndexedSlices(values, like.indices)
