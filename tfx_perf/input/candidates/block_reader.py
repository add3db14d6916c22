"""Streams from disk in big blocks."""

import functools
from collections.abc import Callable

import tensorflow as tf

from tfx_perf.hardware import host
from tfx_perf.input import limits as limits_lib
from tfx_perf.input import source as source_lib
from tfx_perf.input.building import batching, blocks, sharding, tensor_size
from tfx_perf.input.candidates import streaming

_FILES_AT_ONCE = 16
_WINDOWS = 3  # of the default's shuffle buffer, in a block
# At a time: one is being filled, one joined, one shuffled, one waits, one is parsed.
_BLOCKS = 5
_UNLIMITED_BYTES = 2**62


class BlockReader(streaming.StreamingCandidate):
    """Reads records in big blocks, and shuffles and parses each block in one go.

    For data that does not fit into memory: it holds a few blocks. Files are read in random
    order, many at once. An example moves within its block, where the default lets it move in a
    sliding window: two examples of a block of B are B/3 apart on average, those that leave a
    window of w together about w, so a block holds three windows.
    """

    name = "block_reader"
    description = "Streams from disk; big blocks are shuffled and parsed in one call each."

    def needed_bytes(self, source: source_lib.RecordSource) -> float:
        """Returns what a few blocks of records take, and the batches that are made of them."""
        rows, block_rows = _sizes(source)
        held_bytes = min(block_rows, source.estimated_count) * (
            source.record_bytes + tensor_size.STRING_HEADER_BYTES
        )
        finished_bytes = min(rows, source.estimated_count) * source.example_bytes
        return _BLOCKS * held_bytes + (host.cpu_count() + 1) * finished_bytes

    def stream(
        self, source: source_lib.RecordSource, *, limits: limits_lib.Limits
    ) -> tf.data.Dataset:
        """Returns a dataset that holds a few blocks of records at a time."""
        parse = source.need_parse()
        options = source.options
        rows, block_rows = _sizes(source)
        seeds = batching.epochs(options)
        turn = min(blocks.TURN, -(-rows // _FILES_AT_ONCE))
        join = functools.partial(
            blocks.joined,
            rows=block_rows,
            limit_bytes=min(limits.memory_bytes, _UNLIMITED_BYTES) / (_BLOCKS + 1),
            row_size=source_lib.RECORD_SIZE,
        )

        def vectors(worker: sharding.Worker) -> tf.data.Dataset:
            if not options.shuffle:
                own = source.records().shard(worker.count, worker.index)
                return join(own.batch(turn)).repeat(options.num_epochs).prefetch(1)
            return seeds.flat_map(
                lambda seed: _shuffled_epoch(source, worker, seed=seed, turn=turn, join=join)
            ).prefetch(1)

        return batching.to_batches(
            vectors,
            finish=parse,
            source=source,
            limits=limits,
            cut=functools.partial(
                blocks.cut,
                limit_bytes=batching.bytes_per_block(limits),
                row_size=source.example_size,
            ),
        )


def _sizes(source: source_lib.RecordSource) -> tuple[int, int]:
    """Returns how many rows to parse at once, and how many to shuffle, which is a block."""
    rows = batching.rows_per_block(source.example_bytes)
    options = source.options
    return rows, max(rows, _WINDOWS * options.shuffle_buffer_size) if options.shuffle else rows


def _shuffled_epoch(
    source: source_lib.RecordSource,
    worker: sharding.Worker,
    *,
    seed: tf.Tensor,
    turn: int,
    join: Callable[[tf.data.Dataset], tf.data.Dataset],
) -> tf.data.Dataset:
    """Returns one epoch of shuffled blocks from files in random order, many at once.

    TFXIO leaves the cycle length to tf.data, which makes it a third of the CPUs: one file
    at a time on a small machine, so that neither reading nor mixing is parallel. And its
    interleave hands over record by record; `turn` records at a time cost half.
    """
    compression, files = source.compression, source.files

    def records(name: tf.Tensor) -> tf.data.Dataset:
        read = tf.data.TFRecordDataset(
            name, compression, buffer_size=source_lib.READER_BUFFER_BYTES
        )
        return worker.records(read, files).batch(turn)

    def shuffled(index: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        own_seed = tf.random.experimental.stateless_fold_in(seed, index)
        return tf.random.experimental.stateless_shuffle(rows, own_seed)

    names = tf.random.experimental.stateless_shuffle(worker.files(files), seed)
    turns = (
        tf.data.Dataset.from_tensor_slices(names)
        .interleave(
            records,
            cycle_length=min(len(files), _FILES_AT_ONCE),
            num_parallel_calls=min(len(files), host.cpu_count()),
            deterministic=True,
        )
    )
    return join(turns).enumerate().map(shuffled)
