"""Streams from disk in big blocks."""

import tensorflow as tf

from tfx_perf.hardware import host
from tfx_perf.input import batching, candidate
from tfx_perf.input import limits as limits_lib
from tfx_perf.input import source as source_lib

_FILES_AT_ONCE = 16
_RECORDS_PER_TURN = 256
_READER_BUFFER_BYTES = 2**20


class BlockReader(candidate.Candidate):
    """Reads records in big blocks, and shuffles and parses each block in one go.

    For data that does not fit into memory: it holds a few blocks. Files are read in random
    order, many at once, and a block holds no fewer records than the default's shuffle
    buffer; an example moves within its block, where the default lets it move in a sliding
    window of that size.
    """

    name = "block_reader"
    description = "Streams from disk; big blocks are shuffled and parsed in one call each."

    def build(
        self, source: source_lib.RecordSource, *, limits: limits_lib.Limits
    ) -> tf.data.Dataset:
        """Returns a dataset that holds a few blocks of records at a time."""
        if source.parse is None:
            raise candidate.NotApplicable("the records are not tf.Examples with a schema")
        options = source.options
        rows = batching.rows_per_block(source.record_bytes)
        block = max(rows, options.shuffle_buffer_size) if options.shuffle else rows
        # One block is filled while the one before is parsed.
        limits.check(2 * block * source.record_bytes)
        if options.shuffle:
            turn = min(_RECORDS_PER_TURN, -(-rows // _FILES_AT_ONCE))
            blocks = _shuffled_files(source, turn=turn).rebatch(block)
            blocks = tf.data.Dataset.zip((blocks, batching.seeds(options.shuffle_seed))).map(
                tf.random.experimental.stateless_shuffle
            )
        else:
            blocks = source.records().batch(block)
        return batching.to_batches(
            blocks.repeat(options.num_epochs).prefetch(1),
            finish=source.parse,
            source=source,
            row_bytes=source.record_bytes,
        )


def _shuffled_files(source: source_lib.RecordSource, *, turn: int) -> tf.data.Dataset:
    """Returns one epoch of serialised records from files in random order, many at once.

    TFXIO leaves the cycle length to tf.data, which makes it a third of the CPUs: one file
    at a time on a small machine, so that neither reading nor mixing is parallel. And its
    interleave hands over record by record; `turn` records at a time cost half.
    """
    compression = source.compression
    files = tf.data.Dataset.list_files(
        list(source.file_patterns), shuffle=True, seed=source.options.shuffle_seed
    )
    return files.interleave(
        lambda name: tf.data.TFRecordDataset(
            name, compression, buffer_size=_READER_BUFFER_BYTES
        ).batch(turn),
        cycle_length=min(len(source.files), _FILES_AT_ONCE),
        num_parallel_calls=min(len(source.files), host.cpu_count()),
        deterministic=True,
    )
