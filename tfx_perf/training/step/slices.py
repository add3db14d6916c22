"""Cuts a batch along its first dimension, whatever its tensors are."""

from typing import Any

import tensorflow as tf

Tensors = Any  # a nested structure of dense, sparse and ragged tensors


def rows(batch: Tensors, begin: tf.Tensor, size: tf.Tensor) -> Tensors:
    """Returns `size` rows from `begin` on of everything in the batch; scalars stay as they are.

    Args:
        batch: dense, sparse or ragged tensors, or None.
        begin: scalar, int32.
        size: scalar, int32.
    """

    def cut(tensor: Any) -> Any:
        if tensor is None or tensor.shape.rank == 0:
            return tensor
        if isinstance(tensor, tf.SparseTensor):
            whole = tensor.dense_shape
            start = tf.concat([[tf.cast(begin, tf.int64)], tf.zeros_like(whole[1:])], axis=0)
            extent = tf.concat([[tf.cast(size, tf.int64)], whole[1:]], axis=0)
            part = tf.sparse.slice(tensor, start, extent)
            # What is known of the shape must stay known; layers ask for the last dimension.
            part.set_shape([None, *tensor.shape[1:]])
            return part
        return tensor[begin : begin + size]

    return tf.nest.map_structure(cut, batch)


def bounds(
    row_total: tf.Tensor, *, pieces: tf.Tensor, index: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns where a piece begins and how many rows it has; pieces differ by one row at most.

    Args:
        row_total: rows of the whole, scalar, int32.
        pieces: how many there are, at most `row_total`.
        index: which one is asked for, from 0.
    """
    size, longer = row_total // pieces, row_total % pieces
    return index * size + tf.minimum(index, longer), size + tf.cast(index < longer, tf.int32)
