"""A whole split in RAM."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfx_perf.input import candidate
from tfx_perf.input import limits as limits_lib

_STRING_HEADER_BYTES = 24  # sizeof(tensorflow::tstring)

Parts = tuple[tuple[tf.Tensor, ...], ...]


@dataclasses.dataclass(frozen=True)
class Table:
    """The rows of a split, column by column.

    Attributes:
        columns: dataset of one element, a tuple per column: the values of all rows, for ragged
            and sparse columns after their row splits (int64; nested ones outermost first).
        element_spec: structure of the specs of the columns; batch sizes are of no account.
        count: number of rows.
        held_bytes: memory of the tensors.
    """

    columns: tf.data.Dataset
    element_spec: Any
    count: int
    held_bytes: int

    def take(self, rows: tf.Tensor, columns: Parts) -> Any:
        """Returns rows in the structure of `element_spec`.

        Args:
            rows: their numbers, int64, shape [n].
            columns: the element of `self.columns`; not taken from `self`, because tensors
                captured by a dataset's function are copied when tf.data rewrites its graph.
        """
        specs = tf.nest.flatten(self.element_spec)
        taken = [_take(parts, rows, spec) for parts, spec in zip(columns, specs, strict=True)]
        return tf.nest.pack_sequence_as(self.element_spec, taken)


def load(
    chunks: tf.data.Dataset, *, limits: limits_lib.Limits, expected_count: float
) -> Table:
    """Reads a finite dataset of batches into memory.

    Args:
        chunks: structures of dense, ragged or sparse tensors of shape [n, ...].
        limits: checked after every chunk, for what is held and for what is to come, so that
            data too large is given up early.
        expected_count: about how many rows there are.

    Raises:
        NotApplicable: over the limits, sparse tensors that are not lists of values, or no
            rows.
    """
    columns: list[list[Any]] = [[] for _ in tf.nest.flatten(chunks.element_spec)]
    held_bytes, row_count, started = 0, 0, time.monotonic()
    # Host memory even where a GPU is the default device, and outside of any graph.
    with tf.init_scope(), tf.device("/CPU:0"):
        for structure in chunks.with_options(_pinned()):
            for column, value in zip(columns, tf.nest.flatten(structure), strict=True):
                column.append(_as_ragged(value) if isinstance(value, tf.SparseTensor) else value)
                held_bytes += sum(map(_size_bytes, _parts(column[-1])))
            limits.check(held_bytes)
            row_count += int(columns[0][-1].shape[0])
            limits.check_forecast(
                held_bytes,
                progress=row_count / max(expected_count, row_count),
                seconds=time.monotonic() - started,
            )
        if not columns[0]:
            raise candidate.NotApplicable("there are no examples")
        whole = []
        while columns:  # popped one by one, so that only one column is held twice
            whole.append(tf.concat(columns.pop(0), axis=0))
        count = int(whole[0].shape[0])
        parts = tf.data.Dataset.from_tensors(tuple(map(_parts, whole)))
    return Table(parts, chunks.element_spec, count, held_bytes)


def _pinned() -> tf.data.Options:
    """Returns options without autotune, whose thread may hold up the end of an iterator."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return options


def _as_ragged(value: tf.SparseTensor) -> tf.RaggedTensor:
    """Returns the rows of a sparse tensor as lists of values."""
    if value.shape.rank == 2:
        rows = tf.RaggedTensor.from_value_rowids(
            value.values, value.indices[:, 0], nrows=value.dense_shape[0]
        )
        lists = rows.to_sparse()
        if bool(tf.reduce_all(lists.dense_shape == value.dense_shape)) and bool(
            tf.reduce_all(lists.indices == value.indices)
        ):
            return rows
    raise candidate.NotApplicable("a sparse feature has values at places of its own")


def _parts(value: tf.Tensor | tf.RaggedTensor) -> tuple[tf.Tensor, ...]:
    if not isinstance(value, tf.RaggedTensor):
        return (value,)
    value = value.with_row_splits_dtype(tf.int64)
    return (*value.nested_row_splits, value.flat_values)


def _take(parts: tuple[tf.Tensor, ...], rows: tf.Tensor, spec: tf.TypeSpec) -> Any:
    *splits, values = parts
    if not splits:
        return tf.gather(values, rows)
    lists = _take_lists(splits, values, rows)
    if isinstance(spec, tf.SparseTensorSpec):
        return lists.to_sparse()
    return lists.with_row_splits_dtype(spec.row_splits_dtype)


def _take_lists(
    splits: Sequence[tf.Tensor], values: tf.Tensor, rows: tf.Tensor
) -> tf.RaggedTensor:
    """Does what `tf.gather` does, which checks the splits of the whole column at each call."""
    outer, *inner = splits
    taken = tf.ragged.range(tf.gather(outer, rows), tf.gather(outer, rows + 1))
    content = (
        _take_lists(inner, values, taken.values) if inner else tf.gather(values, taken.values)
    )
    return tf.RaggedTensor.from_row_splits(content, taken.row_splits, validate=False)


def _size_bytes(value: tf.Tensor) -> int:
    if value.dtype == tf.string:
        content = int(tf.reduce_sum(tf.strings.length(value)))
        return content + _STRING_HEADER_BYTES * int(tf.size(value))
    return int(tf.size(value)) * value.dtype.size
