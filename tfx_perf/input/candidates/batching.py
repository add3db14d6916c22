"""Batches with TFXIO's semantics from records or row numbers, with little work per batch.

Vectors of records are bounded in bytes, because records at the beginning of a file may be a
thousand times smaller than the rest.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_perf.hardware import host
from tfx_perf.input.candidates import sharding
from tfx_perf.input.candidates.limits import Limits
from tfx_perf.input.candidates.source import RecordSource, RowSize
from tfx_perf.tf_internals import datasets

TURN = 256
"""Records passed on at once, unless large: a call per record costs more than the record."""

ROWS_PER_BLOCK = 16384
_BYTES_PER_BLOCK = 32 * 2**20
_BLOCK_SHARE = 1 / 64  # share of the memory; several blocks are in use at a time
# Blocks of dense examples that are cut into batches: larger ones are no faster, and a checkpoint
# holds several.
_CUT_BYTES = 2**20


def rows_per_block(row_bytes: float) -> int:
    """Returns how many rows of `row_bytes` to handle at once: 16384, fewer if they are large."""
    return max(1, min(ROWS_PER_BLOCK, int(_BYTES_PER_BLOCK / max(row_bytes, 1))))


def bytes_per_block(limits: Limits) -> float:
    """Returns how large a block of rows may become: 32 MiB, less if memory is scarce."""
    return max(1.0, min(_BYTES_PER_BLOCK, _BLOCK_SHARE * limits.memory_bytes))


def epochs(options: Any) -> tf.data.Dataset:
    """Returns one seed (int64, [2]) per epoch for stateless ops, different in each iterator."""
    numbers = tf.data.Dataset.random(seed=options.shuffle_seed, rerandomize_each_iteration=True)
    seeds = numbers.batch(2, drop_remainder=True)
    return seeds.take(-1 if options.num_epochs is None else options.num_epochs)


def to_batches(
    rows: Callable[[sharding.Worker], tf.data.Dataset],
    *,
    finish: Callable[..., Any],
    source: RecordSource,
    limits: Limits,
    cut: Callable[[tf.data.Dataset], tf.data.Dataset] | None = None,
    beside: tf.data.Dataset | None = None,
) -> tf.data.Dataset:
    """Cuts vectors of rows into batches of finished examples.

    Dense rows are finished in blocks of many batches, which are then cut: if batches are small, a
    call per batch costs more than the bytes. `rows` makes a worker's 1-D tensors of row numbers or
    records, `finish` turns one into as many examples, and `cut` sets their length (None: by the
    mean size of an example). `finish` also gets the one element of `beside`, because tf.data would
    copy a captured tensor at each rewrite of the graph; with it, `rows` must read no files.
    """
    batch_size, spec = source.options.batch_size, source.element_spec
    final = {"batch_size": batch_size, "drop_remainder": source.drops_remainder}
    # rebatch would take sparse and ragged tensors apart row by row
    is_dense = all(isinstance(part, tf.TensorSpec) for part in tf.nest.flatten(spec))
    # Held rows may be far smaller: records without some features, numbers of long strings.
    most = min(_CUT_BYTES, bytes_per_block(limits)) / max(source.example_bytes, 1)
    block = max(1, int(min(ROWS_PER_BLOCK, most)) // batch_size) * batch_size

    def vectors(worker: sharding.Worker) -> tf.data.Dataset:
        if not is_dense:
            cut_rows = rows(worker).rebatch(**final)
        elif cut:
            cut_rows = cut(rows(worker))
        else:
            cut_rows = rows(worker).rebatch(block)
        return tf.data.Dataset.zip((cut_rows, beside.repeat())) if beside else cut_rows

    def finished_rows(*given: Any) -> Any:
        return tf.nest.map_structure(_with_row_count, finish(*given), spec)

    made = datasets.mapped(
        sharding.split(vectors, reads_files=beside is None),
        finish if is_dense else finished_rows,
        num_parallel_calls=host.cpu_count(),
        deterministic=True,
    )
    return finished(made.rebatch(**final) if is_dense else made, source)


def finished(batches: tf.data.Dataset, source: RecordSource) -> tf.data.Dataset:
    """Returns the batches with the options and cardinality that all candidates end with."""
    if source.is_endless:  # nested datasets lose it, and Keras asks for it
        endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        batches = batches.apply(endless)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = sharding.POLICY
    # Nothing here is left to autotune.
    return datasets.without_autotune(batches.with_options(options))


def _with_row_count(value: Any, spec: tf.TypeSpec) -> Any:
    """Gives a ragged or sparse tensor the static number of rows of its spec, if that has one."""
    if isinstance(value, tf.Tensor) or spec.shape[0] is None:
        return value
    if isinstance(value, tf.SparseTensor):
        sizes = zip(spec.shape, tf.unstack(value.dense_shape, spec.shape.rank), strict=True)
        shape = [size if known is None else tf.constant(known, tf.int64) for known, size in sizes]
        return tf.SparseTensor(value.indices, value.values, tf.stack(shape))
    splits = tf.ensure_shape(value.row_splits, [spec.shape[0] + 1])
    return tf.RaggedTensor.from_row_splits(value.values, splits, validate=False)


def joined(
    vectors: tf.data.Dataset, *, rows: int, limit_bytes: float, row_size: RowSize
) -> tf.data.Dataset:
    """Returns serialized records ([n] string vectors) in blocks of `rows` rows or `limit_bytes`."""
    # An empty vector at the end releases the remaining records as a block.
    marked = vectors.map(lambda vector: (vector, False)).concatenate(
        tf.data.Dataset.from_tensors((tf.constant([], tf.string), True))
    )

    def step(state: tuple[tf.Tensor, ...], item: tuple[tf.Tensor, ...]) -> tuple[Any, tf.Tensor]:
        strings, row_count, size_bytes = state
        vector, is_last = item
        strings = tf.raw_ops.TensorListPushBack(input_handle=strings, tensor=vector)
        row_count += tf.size(vector, tf.int64)
        size_bytes += tf.reduce_sum(row_size.of(vector))
        return tf.cond(
            is_last | (row_count >= rows) | (size_bytes >= int(limit_bytes)),
            lambda: (_nothing(), _concatenated(strings)),
            lambda: ((strings, row_count, size_bytes), tf.constant([], tf.string)),
        )

    return marked.scan(_nothing(), step).filter(lambda block: tf.size(block) > 0)


def cut(blocks: tf.data.Dataset, *, limit_bytes: float, row_size: RowSize) -> tf.data.Dataset:
    """Returns the same records in vectors whose rows take about `limit_bytes`, or of one record."""

    def pieces(block: tf.Tensor) -> tf.data.Dataset:
        before = tf.cumsum(row_size.of(block), exclusive=True)
        number = before // int(limit_bytes)
        begins = 1 + tf.where(number[1:] != number[:-1])[:, 0]
        splits = tf.concat([[0], begins, tf.shape(block, tf.int64)], axis=0)
        places = tf.data.Dataset.from_tensor_slices((splits[:-1], splits[1:]))
        return places.map(lambda begin, end: block[begin:end])

    return blocks.flat_map(pieces)


def _nothing() -> tuple[tf.Tensor, ...]:
    strings = tf.raw_ops.EmptyTensorList(
        element_shape=[-1], max_num_elements=-1, element_dtype=tf.string
    )
    return strings, tf.constant(0, tf.int64), tf.constant(0, tf.int64)


def _concatenated(strings: tf.Tensor) -> tf.Tensor:
    block, _ = tf.raw_ops.TensorListConcatV2(
        input_handle=strings, element_shape=[-1], leading_dims=tf.constant([], tf.int64),
        element_dtype=tf.string,
    )  # fmt: skip
    return block
