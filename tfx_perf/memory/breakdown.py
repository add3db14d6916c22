"""The part of a step's memory that follows from shapes alone."""

import math
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tfx_perf.memory.record import StateSizes


def state_sizes(model: Any) -> StateSizes:
    """Returns the sizes of a compiled model of either Keras line that has trained a step.

    Args:
        model: built and with its optimizer's variables made, as they are after a step.
    """
    optimizer_variables = model.optimizer.variables
    if callable(optimizer_variables):  # a method in tf_keras
        optimizer_variables = optimizer_variables()
    return StateSizes(
        weights_bytes=_variables_bytes(model.variables),
        optimizer_state_bytes=_variables_bytes(optimizer_variables),
        gradients_bytes=_variables_bytes(model.trainable_variables),
    )


def tensor_bytes(structure: Any) -> int:
    """Returns the bytes of the eager tensors in a nested structure, e.g. of a batch.

    Strings count by their length; ragged and sparse tensors by their components.
    """
    tensors = tf.nest.flatten(structure, expand_composites=True)
    return sum(
        int(tf.reduce_sum(tf.strings.length(tensor)))
        if tensor.dtype == tf.string
        else tensor.shape.num_elements() * tensor.dtype.size
        for tensor in tensors
    )


def _variables_bytes(variables: Iterable[Any]) -> int:
    unique = {id(variable): variable for variable in variables}.values()
    return sum(math.prod(variable.shape) * tf.as_dtype(variable.dtype).size for variable in unique)
