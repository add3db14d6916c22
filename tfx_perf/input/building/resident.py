"""A whole split in RAM."""

import time

import tensorflow as tf

from tfx_perf.input import candidate
from tfx_perf.input import limits as limits_lib
from tfx_perf.input.building import column, table
from tfx_perf.tf_internals import datasets


def load(
    chunks: tf.data.Dataset, *, limits: limits_lib.Limits, expected_bytes: float
) -> table.Table:
    """Reads a finite dataset of batches into memory.

    Args:
        chunks: pairs of a structure of dense, ragged or sparse tensors of shape [n, ...] and
            the bytes that were read for it, int64 scalar.
        limits: checked after every chunk, for what is held and for what is to come, so that
            data too large is given up early.
        expected_bytes: about how many bytes there are to be read.

    Raises:
        NotApplicable: over the limits, sparse tensors that are not lists of values, or no
            rows.
    """
    spec, _ = chunks.element_spec
    columns = [column.of_spec(part) for part in tf.nest.flatten(spec)]
    read_bytes, started = 0, time.monotonic()
    # Host memory even where a GPU is the default device, and outside of any graph.
    with tf.init_scope(), tf.device("/CPU:0"):
        for structure, chunk_bytes in datasets.without_autotune(chunks):
            for each, value in zip(columns, tf.nest.flatten(structure), strict=True):
                each.add(value)
            needed_bytes = _needed_bytes(columns)
            read_bytes += int(chunk_bytes)
            limits.check_forecast(  # first, because it says how much would do
                needed_bytes,
                progress=min(1.0, read_bytes / expected_bytes),
                seconds=time.monotonic() - started,
            )
            limits.check(needed_bytes)
        if not read_bytes:
            raise candidate.NotApplicable("there are no examples")
        for each in columns:
            each.end()
        limits.check(_needed_bytes(columns))
        return table.Table.of_columns(columns, element_spec=spec)


def _needed_bytes(columns: list[column.Column]) -> int:
    """Returns what a table of what was read so far takes while it is put together."""
    held_bytes = sum(each.size_bytes for each in columns)
    return held_bytes + max((each.doubled_bytes for each in columns), default=0)
