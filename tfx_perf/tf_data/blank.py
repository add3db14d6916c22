"""Datasets that have the structure of others, and nothing in them."""

import functools
from typing import Any

import tensorflow as tf


def blank(spec: Any, *, open_size: int = 1) -> tf.data.Dataset:
    """Returns an endless dataset of one element without content, of a given structure.

    For what has to be traced before there are data: zeros, empty words, no rows in what is ragged.

    Args:
        spec: nested structure of `tf.TypeSpec`s, as a dataset's `element_spec`.
        open_size: of the dimensions that the specification leaves open.

    Raises:
        TypeError: of a type that cannot be made up.
    """
    element = tf.nest.map_structure(functools.partial(_value, open_size=open_size), spec)
    return tf.data.Dataset.from_generator(lambda: iter([element]), output_signature=spec).repeat()


def _value(spec: tf.TypeSpec, *, open_size: int) -> Any:
    if isinstance(spec, tf.TensorSpec):
        return _zeros(spec, open_size)
    if isinstance(spec, tf.SparseTensorSpec):
        shape = [open_size if size is None else size for size in spec.shape]
        empty = tf.zeros([0, len(shape)], tf.int64)
        return tf.SparseTensor(empty, tf.zeros([0], spec.dtype), shape)
    if isinstance(spec, tf.RaggedTensorSpec):
        inner = tf.TensorSpec([0, *spec.shape[spec.ragged_rank + 1 :]], spec.dtype)
        found = _zeros(inner, open_size)
        for _ in range(spec.ragged_rank):
            found = tf.RaggedTensor.from_row_splits(found, tf.zeros([1], spec.row_splits_dtype))
        return found
    raise TypeError(
        "Expected data of dense, sparse or ragged tensors. "
        f"Received: element_spec with a {type(spec).__name__}."
    )


def _zeros(spec: tf.TensorSpec, open_size: int) -> tf.Tensor:
    sizes = [] if spec.shape.rank is None else spec.shape
    shape = [open_size if size is None else size for size in sizes]
    return tf.zeros(shape, spec.dtype)
