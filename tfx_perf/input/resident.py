"""A whole split in RAM."""

import time
from typing import Any

import tensorflow as tf

from tfx_perf import datasets
from tfx_perf.input import candidate, table
from tfx_perf.input import limits as limits_lib


def load(
    chunks: tf.data.Dataset, *, limits: limits_lib.Limits, expected_count: float
) -> table.Table:
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
        for structure in datasets.without_autotune(chunks):
            for column, value in zip(columns, tf.nest.flatten(structure), strict=True):
                column.append(_as_ragged(value) if isinstance(value, tf.SparseTensor) else value)
                held_bytes += sum(map(table.size_bytes, table.parts_of(column[-1])))
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
        while columns:  # popped one by one, so that only one is held twice
            whole.append(tf.concat(columns.pop(0), axis=0))
        return table.Table.of_columns(whole, element_spec=chunks.element_spec)


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
