"""How much memory tensors take."""

from typing import Any

import tensorflow as tf

STRING_HEADER_BYTES = 24  # sizeof(tensorflow::tstring)


def of(structure: Any) -> int:
    """Returns the bytes of dense, ragged and sparse tensors, strings by their length."""
    return sum(map(_of_one, tf.nest.flatten(structure, expand_composites=True)))


def _of_one(value: tf.Tensor) -> int:
    if value.dtype == tf.string:
        content = int(tf.reduce_sum(tf.cast(tf.strings.length(value), tf.int64)))
        return content + STRING_HEADER_BYTES * int(tf.size(value))
    return int(tf.size(value)) * value.dtype.size
