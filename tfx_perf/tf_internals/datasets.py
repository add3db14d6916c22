"""Small helpers for `tf.data` that several packages need."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_perf.tf_internals import ancestry


def without_autotune(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset without autotune, whose thread on TF 2.16 delays an iterator's end."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def endless(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset, repeated unless it is already endless."""
    is_endless = int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY
    return dataset if is_endless else dataset.repeat()


def repeated(batch: Any, *, spec: Any = None) -> tf.data.Dataset:
    """Returns a dataset that repeats a batch of eager tensors; a wider `spec` avoids retracing."""
    data = tf.data.Dataset.from_tensors(batch).repeat()
    if spec is None:
        return data
    return tf.data.experimental.from_variant(tf.data.experimental.to_variant(data), spec)


def mapped(
    dataset: tf.data.Dataset, function: Callable[..., Any], **options: Any
) -> tf.data.Dataset:
    """Returns `dataset.map(function)` without AutoGraph, traced in half the time."""
    return dataset.map(tf.autograph.experimental.do_not_convert(function), **options)


def copied(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns a dataset whose elements are new tensors each time, like elements that are read."""

    def copy(*element: Any) -> Any:
        copies = tf.nest.map_structure(
            lambda part: tf.raw_ops.DeepCopy(x=part), element, expand_composites=True
        )
        return copies if len(copies) > 1 else copies[0]

    return mapped(dataset, copy)


def row_count(batch: Any) -> tf.Tensor:
    """Returns the rows (int64 scalar) of the first non-scalar tensor; ValueError without one."""
    for value in tf.nest.flatten(batch):
        if isinstance(value, tf.RaggedTensor):
            return value.nrows(out_type=tf.int64)
        if value is not None and value.shape.rank != 0:
            return tf.shape(value, out_type=tf.int64)[0]  # of a sparse tensor, its dense shape
    raise ValueError("a batch of nothing but scalars has no rows")


def operations(data: Any) -> set[str]:
    """Returns a dataset's operations, e.g. `ParallelMapDatasetV2`; none if it has no graph."""
    if not isinstance(data, tf.data.Dataset):
        return set()
    graph = ancestry.graph_of(data)
    return {node.op for node in ancestry.nodes(graph)} if graph else set()


def static_row_count(batch: Any) -> int | None:
    """Returns how many rows a batch has if that is known while tracing, otherwise None."""
    tensors = [tensor for tensor in tf.nest.flatten(batch) if tensor is not None]
    return next((tensor.shape[0] for tensor in tensors if tensor.shape.rank), None)


def blank(spec: Any, *, open_size: int = 1) -> tf.data.Dataset:
    """Returns an endless dataset of one element of zeros and empty strings, to trace without data.

    Open dimensions are `open_size`. Raises TypeError for types that cannot be made up.
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
        value = _zeros(inner, open_size)
        for _ in range(spec.ragged_rank):
            value = tf.RaggedTensor.from_row_splits(value, tf.zeros([1], spec.row_splits_dtype))
        return value
    raise TypeError(
        "Expected data of dense, sparse or ragged tensors. "
        f"Received: element_spec with a {type(spec).__name__}."
    )


def _zeros(spec: tf.TensorSpec, open_size: int) -> tf.Tensor:
    sizes = [] if spec.shape.rank is None else spec.shape
    shape = [open_size if size is None else size for size in sizes]
    return tf.zeros(shape, spec.dtype)
