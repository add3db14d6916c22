"""Streams from disk in big blocks."""

import tensorflow as tf

from tfx_perf.hardware import host
from tfx_perf.input import batching, candidate, sharding
from tfx_perf.input import limits as limits_lib
from tfx_perf.input import source as source_lib

_FILES_AT_ONCE = 16
_RECORDS_PER_TURN = 256
_WINDOWS = 3  # of the default's shuffle buffer, in a block


class BlockReader(candidate.Candidate):
    """Reads records in big blocks, and shuffles and parses each block in one go.

    For data that does not fit into memory: it holds a few blocks. Files are read in random
    order, many at once. An example moves within its block, where the default lets it move in a
    sliding window: two examples of a block of B are B/3 apart on average, those that leave a
    window of w together about w, so a block holds three windows.
    """

    name = "block_reader"
    description = "Streams from disk; big blocks are shuffled and parsed in one call each."

    def build(
        self, source: source_lib.RecordSource, *, limits: limits_lib.Limits
    ) -> tf.data.Dataset:
        """Returns a dataset that holds a few blocks of records at a time."""
        parse = source.need_parse()
        options = source.options
        rows = batching.rows_per_block(source.record_bytes)
        block = max(rows, _WINDOWS * options.shuffle_buffer_size) if options.shuffle else rows
        # One block is filled while the one before is parsed.
        limits.check(2 * block * source.record_bytes)
        seeds = batching.epochs(options)

        def blocks(worker: sharding.Worker) -> tf.data.Dataset:
            if not options.shuffle:
                own = source.records().shard(worker.count, worker.index)
                return own.batch(block).repeat(options.num_epochs).prefetch(1)
            turn = min(_RECORDS_PER_TURN, -(-rows // _FILES_AT_ONCE))
            return seeds.flat_map(
                lambda seed: _shuffled_epoch(source, worker, seed=seed, turn=turn, block=block)
            ).prefetch(1)

        return batching.to_batches(
            blocks, finish=parse, source=source, row_bytes=source.record_bytes
        )


def _shuffled_epoch(
    source: source_lib.RecordSource,
    worker: sharding.Worker,
    *,
    seed: tf.Tensor,
    turn: int,
    block: int,
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
    blocks = (
        tf.data.Dataset.from_tensor_slices(names)
        .interleave(
            records,
            cycle_length=min(len(files), _FILES_AT_ONCE),
            num_parallel_calls=min(len(files), host.cpu_count()),
            deterministic=True,
        )
        .rebatch(block)
    )
    return blocks.enumerate().map(shuffled)
