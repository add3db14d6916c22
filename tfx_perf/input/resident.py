"""A whole split in RAM."""

import dataclasses
from typing import Any

import tensorflow as tf

from tfx_perf.input import candidate
from tfx_perf.input import limits as limits_lib

_STRING_HEADER_BYTES = 24  # sizeof(tensorflow::tstring)


@dataclasses.dataclass(frozen=True)
class Table:
    """The rows of a split, column by column.

    Attributes:
        columns: structure of dense or ragged tensors of shape [count, ...].
        count: number of rows.
        held_bytes: memory of the tensors.
    """

    columns: Any
    count: int
    held_bytes: int

    def take(self, rows: tf.Tensor) -> Any:
        """Returns the rows with the numbers `rows` (int64, shape [n]) in the same structure."""
        return tf.nest.map_structure(lambda column: tf.gather(column, rows), self.columns)


def load(chunks: tf.data.Dataset, *, limits: limits_lib.Limits) -> Table:
    """Reads a finite dataset of batches into memory.

    Args:
        chunks: structures of dense or ragged tensors of shape [n, ...].
        limits: checked after every chunk, so that data too large is given up early.

    Raises:
        NotApplicable: over the limits, sparse tensors, or no rows.
    """
    if any(isinstance(spec, tf.SparseTensorSpec) for spec in tf.nest.flatten(chunks.element_spec)):
        raise candidate.NotApplicable("sparse tensors cannot be kept as columns")
    structure = None
    columns: list[list[Any]] = []
    held_bytes = 0
    # Host memory even where a GPU is the default device, and outside of any graph.
    with tf.init_scope(), tf.device("/CPU:0"):
        for structure in chunks:
            parts = tf.nest.flatten(structure)
            columns = columns or [[] for _ in parts]
            for column, part in zip(columns, parts, strict=True):
                column.append(part)
                held_bytes += _size_bytes(part)
            limits.check(held_bytes)
        if structure is None:
            raise candidate.NotApplicable("there are no examples")
        whole = []
        while columns:  # popped one by one, so that only one column is held twice
            whole.append(tf.concat(columns.pop(0), axis=0))
    count = int(whole[0].shape[0])
    return Table(tf.nest.pack_sequence_as(structure, whole), count, held_bytes)


def _size_bytes(value: tf.Tensor | tf.RaggedTensor) -> int:
    if isinstance(value, tf.RaggedTensor):
        splits = sum(_size_bytes(part) for part in value.nested_row_splits)
        return splits + _size_bytes(value.flat_values)
    if value.dtype == tf.string:
        content = int(tf.reduce_sum(tf.strings.length(value)))
        return content + _STRING_HEADER_BYTES * int(tf.size(value))
    return int(tf.size(value)) * value.dtype.size
