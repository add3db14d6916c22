"""From vectors of rows to batches with TFXIO's semantics, with little work per batch."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_perf.hardware import host
from tfx_perf.input import limits as limits_lib
from tfx_perf.input import source as source_lib
from tfx_perf.input.building import blocks, sharding
from tfx_perf.tf_internals import datasets

_ROWS_PER_BLOCK = 16384
_BYTES_PER_BLOCK = 32 * 2**20
_BLOCK_SHARE = 1 / 64  # of the memory; a few blocks are under way at a time


def rows_per_block(row_bytes: float) -> int:
    """Returns how many rows of `row_bytes` to handle at once: 16384, fewer if they are large."""
    return max(1, min(_ROWS_PER_BLOCK, int(_BYTES_PER_BLOCK / max(row_bytes, 1))))


def chunks(
    source: source_lib.RecordSource, *, limits: limits_lib.Limits, row_size: blocks.RowSize
) -> tf.data.Dataset:
    """Returns all records in their unshuffled order, in vectors to handle at once.

    Args:
        source: of the records.
        limits: of which a vector's rows take a small part.
        row_size: of what will be made of them.
    """
    limit_bytes = bytes_per_block(limits)
    row_bytes = row_size.padding_bytes + row_size.ratio * source.record_bytes
    turn = max(1, min(blocks.TURN, int(limit_bytes / max(row_bytes, 1))))
    return blocks.joined(
        source.records().batch(turn),
        rows=_ROWS_PER_BLOCK,
        limit_bytes=limit_bytes,
        row_size=row_size,
    )


def bytes_per_block(limits: limits_lib.Limits) -> float:
    """Returns how large what is handled at once may become: 32 MiB, less if memory is scarce."""
    return max(1.0, min(_BYTES_PER_BLOCK, _BLOCK_SHARE * limits.memory_bytes))


def epochs(options: Any) -> tf.data.Dataset:
    """Returns one seed (int64, shape [2]) an epoch, for stateless random ops.

    Each new iterator goes on in another sequence, as `Dataset.shuffle` does with
    `reshuffle_each_iteration`; with `options.shuffle_seed` all of them are reproducible.
    """
    numbers = tf.data.Dataset.random(seed=options.shuffle_seed, rerandomize_each_iteration=True)
    seeds = numbers.batch(2, drop_remainder=True)
    return seeds.take(-1 if options.num_epochs is None else options.num_epochs)


def row_numbers(
    count: int, options: Any
) -> Callable[[sharding.Worker], tf.data.Dataset]:
    """Returns what makes one int64 vector an epoch: a worker's rows, shuffled if asked for.

    Args:
        count: rows of all workers together.
        options: `num_epochs`, `shuffle` and `shuffle_seed`.
    """
    seeds = epochs(options)

    def numbers(worker: sharding.Worker) -> tf.data.Dataset:
        def epoch(seed: tf.Tensor) -> tf.Tensor:
            rows = worker.rows(count)
            return tf.random.experimental.stateless_shuffle(rows, seed) if options.shuffle else rows

        # One epoch ahead, so that its permutation does not hold up the first batch.
        return seeds.map(epoch).prefetch(1)

    return numbers


def to_batches(
    rows: Callable[[sharding.Worker], tf.data.Dataset],
    *,
    finish: Callable[..., Any],
    source: source_lib.RecordSource,
    limits: limits_lib.Limits,
    cut: Callable[[tf.data.Dataset], tf.data.Dataset] | None = None,
    beside: tf.data.Dataset | None = None,
) -> tf.data.Dataset:
    """Cuts vectors of rows into batches of finished examples.

    Dense rows are finished in blocks of many batches, and the blocks then cut: at small
    batch sizes the cost of a call per batch, not the bytes, is what limits a pipeline.

    Args:
        rows: makes a worker's 1-D tensors of any length (row numbers, serialised records);
            they follow one another as if concatenated.
        finish: turns a 1-D tensor of rows into a structure of that many examples.
        source: the batch size, and whether the last partial batch is dropped.
        limits: of which a block of finished rows takes a small part.
        cut: makes the tensors as long as `finish` should have them, where the size of a row
            is not known before; None: by the mean size of an example.
        beside: one element, the second argument of each call of `finish`. A tensor that
            `finish` captures would be copied into the graph whenever tf.data rewrites it;
            a dataset's element is not.
    """
    batch_size = source.options.batch_size
    final = {"batch_size": batch_size, "drop_remainder": source.drops_remainder}
    # rebatch would take sparse and ragged tensors apart row by row
    spec = source.element_spec
    is_dense = all(isinstance(part, tf.TensorSpec) for part in tf.nest.flatten(spec))
    # What is held may be far smaller: records of missing features, numbers of long strings.
    most = bytes_per_block(limits) / max(source.example_bytes, 1)
    block = max(1, int(min(_ROWS_PER_BLOCK, most)) // batch_size) * batch_size

    def vectors(worker: sharding.Worker) -> tf.data.Dataset:
        if not is_dense:
            cut_rows = rows(worker).rebatch(**final)
        elif cut:
            cut_rows = cut(rows(worker))
        else:
            cut_rows = rows(worker).rebatch(block)
        return tf.data.Dataset.zip((cut_rows, beside.repeat())) if beside else cut_rows

    pieces = sharding.split(vectors)
    if is_dense:
        return finished(datasets.mapped(pieces, finish, **parallel()).rebatch(**final), source)
    return finished(
        datasets.mapped(
            pieces, lambda *rows: with_row_count(finish(*rows), spec), **parallel()
        ),
        source,
    )


def parallel() -> dict[str, Any]:
    """Returns the arguments that make a stage parallel and keep the order."""
    return {"num_parallel_calls": host.cpu_count(), "deterministic": True}


def with_row_count(batch: Any, spec: Any) -> Any:
    """Gives ragged and sparse tensors the static number of rows of `spec`, if it has one."""
    return tf.nest.map_structure(_with_row_count, batch, spec)


def finished(batches: tf.data.Dataset, source: source_lib.RecordSource) -> tf.data.Dataset:
    """Returns the batches with what every pipeline of ours ends with: options, cardinality."""
    if source.is_endless:  # nested datasets forget it, and Keras asks for it
        endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        batches = batches.apply(endless)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = sharding.POLICY
    # Nothing here is left to autotune.
    return datasets.without_autotune(batches.with_options(options))


def _with_row_count(value: Any, spec: tf.TypeSpec) -> Any:
    if isinstance(value, tf.Tensor) or spec.shape[0] is None:
        return value
    if isinstance(value, tf.SparseTensor):
        sizes = zip(spec.shape, tf.unstack(value.dense_shape, spec.shape.rank), strict=True)
        shape = [
            found if known is None else tf.constant(known, tf.int64) for known, found in sizes
        ]
        return tf.SparseTensor(value.indices, value.values, tf.stack(shape))
    splits = tf.ensure_shape(value.row_splits, [spec.shape[0] + 1])
    return tf.RaggedTensor.from_row_splits(value.values, splits, validate=False)
