"""From vectors of rows to batches with TFXIO's semantics, with little work per batch."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_perf.hardware import host
from tfx_perf.input import source as source_lib

_ROWS_PER_BLOCK = 16384
_BYTES_PER_BLOCK = 32 * 2**20


def rows_per_block(row_bytes: float) -> int:
    """Returns how many rows of `row_bytes` to handle at once: 16384, fewer if they are large."""
    return max(1, min(_ROWS_PER_BLOCK, int(_BYTES_PER_BLOCK / max(row_bytes, 1))))


def seeds(seed: int | None) -> tf.data.Dataset:
    """Returns an endless dataset of seeds (int64, shape [2]) for stateless random ops.

    Each new iterator goes on in another sequence, as `Dataset.shuffle` does with
    `reshuffle_each_iteration`; with a seed all of them are reproducible.
    """
    numbers = tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True)
    return numbers.batch(2, drop_remainder=True)


def row_numbers(count: int, options: Any) -> tf.data.Dataset:
    """Returns one int64 vector an epoch: the numbers of `count` rows, shuffled if asked for."""
    if options.shuffle:
        epochs = seeds(options.shuffle_seed).map(
            lambda seed: tf.random.experimental.stateless_shuffle(
                tf.range(count, dtype=tf.int64), seed
            )
        )
    else:
        epochs = tf.data.Dataset.from_tensors(tf.range(count, dtype=tf.int64)).repeat()
    # One epoch ahead, so that its permutation does not hold up the first batch.
    return epochs.take(-1 if options.num_epochs is None else options.num_epochs).prefetch(1)


def to_batches(
    rows: tf.data.Dataset,
    *,
    finish: Callable[[tf.Tensor], Any],
    source: source_lib.RecordSource,
    row_bytes: float,
) -> tf.data.Dataset:
    """Cuts vectors of rows into batches of finished examples.

    Dense rows are finished in blocks of many batches, and the blocks then cut: at small
    batch sizes the cost of a call per batch, not the bytes, is what limits a pipeline.

    Args:
        rows: 1-D tensors of any length (row numbers, serialised records); they follow one
            another as if concatenated.
        finish: turns a 1-D tensor of rows into a structure of that many examples.
        source: the batch size, and whether the last partial batch is dropped.
        row_bytes: mean size of a finished row.
    """
    batch_size = source.options.batch_size
    parallel = {"num_parallel_calls": host.cpu_count(), "deterministic": True}
    final = {"batch_size": batch_size, "drop_remainder": source.drops_remainder}
    if all(isinstance(spec, tf.TensorSpec) for spec in tf.nest.flatten(source.element_spec)):
        block = max(1, rows_per_block(row_bytes) // batch_size) * batch_size
        batches = rows.rebatch(block).map(finish, **parallel).rebatch(**final)
    else:  # rebatch would take sparse and ragged tensors apart row by row
        batches = rows.rebatch(**final).map(finish, **parallel)
    if source.options.num_epochs is None:  # rebatch forgets it, and Keras asks for it
        endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        batches = batches.apply(endless)
    options = tf.data.Options()
    # Nothing here is left to autotune, and on TF 2.16 its thread can hold up the end of every
    # `fit` for as long as that ran.
    options.autotune.enabled = False
    return batches.with_options(options)
