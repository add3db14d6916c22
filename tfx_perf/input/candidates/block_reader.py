"""Streams from disk in big blocks."""

import functools
import weakref

import tensorflow as tf

from tfx_perf.hardware import host
from tfx_perf.input.candidates import batching
from tfx_perf.input.candidates.candidate import Candidate
from tfx_perf.input.candidates.limits import STRING_HEADER_BYTES, Limits
from tfx_perf.input.candidates.sharding import Worker
from tfx_perf.input.candidates.source import RECORD_SIZE, RecordSource

FILES_AT_ONCE = 16
_WINDOWS = 3  # a block holds this many of the default's shuffle buffers
# Blocks at a time: one being filled, one joined, one shuffled, one waiting, one parsed.
_BLOCKS = 5
_UNLIMITED_BYTES = 2**62


class BlockReader(Candidate):
    """Reads records in big blocks, and shuffles and parses each block in one go.

    An example moves within its block; with the default, in a sliding window. Two examples of a
    block of B are B/3 apart on average, and those that leave a window of w are about w apart, so a
    block holds three windows.
    """

    name = "block_reader"
    description = "Streams from disk; big blocks are shuffled and parsed in one call each."

    def __init__(self) -> None:
        self._needed_bytes: weakref.WeakKeyDictionary[tf.data.Dataset, float] = (
            weakref.WeakKeyDictionary()
        )

    @property
    def claimed_bytes(self) -> float:
        """Memory that all datasets still in use hold while they are read."""
        return sum(self._needed_bytes.values())

    @tf.autograph.experimental.do_not_convert  # converting our code would read whole source files
    def build(self, source: RecordSource, *, limits: Limits) -> tf.data.Dataset:
        """Returns a dataset that holds a few blocks of records at a time."""
        parse = source.need_parse()
        options = source.options
        rows = batching.rows_per_block(source.example_bytes)
        block_rows = max(rows, _WINDOWS * options.shuffle_buffer_size * options.shuffle)
        needed_bytes = _needed_bytes(source, rows=rows, block_rows=block_rows)
        limits.check(needed_bytes)
        seeds = batching.epochs(options)
        turn = min(batching.TURN, -(-rows // FILES_AT_ONCE))
        join = functools.partial(
            batching.joined,
            rows=block_rows,
            limit_bytes=min(limits.memory_bytes, _UNLIMITED_BYTES) / (_BLOCKS + 1),
            row_size=RECORD_SIZE,
        )

        def vectors(worker: Worker) -> tf.data.Dataset:
            if not options.shuffle:
                shard = source.records().shard(worker.count, worker.index)
                return join(shard.batch(turn)).repeat(options.num_epochs).prefetch(1)

            def epoch(seed: tf.Tensor) -> tf.data.Dataset:
                blocks = join(_in_random_order(source, worker, seed=seed, turn=turn))
                return blocks.enumerate().map(functools.partial(_shuffled, seed))

            return seeds.flat_map(epoch).prefetch(1)

        dataset = batching.to_batches(
            vectors,
            finish=parse,
            source=source,
            limits=limits,
            cut=functools.partial(
                batching.cut,
                limit_bytes=batching.bytes_per_block(limits),
                row_size=source.example_size,
            ),
        )
        self._needed_bytes[dataset] = needed_bytes
        return dataset


def _needed_bytes(source: RecordSource, *, rows: int, block_rows: int) -> float:
    """Returns the bytes of a few blocks of `block_rows`, and of batches parsed `rows` at once."""
    held_bytes = min(block_rows, source.estimated_count) * (
        source.record_bytes + STRING_HEADER_BYTES
    )
    finished_bytes = min(rows, source.estimated_count) * source.example_bytes
    return _BLOCKS * held_bytes + (host.cpu_count() + 1) * finished_bytes


def _in_random_order(
    source: RecordSource, worker: Worker, *, seed: tf.Tensor, turn: int
) -> tf.data.Dataset:
    """Returns one epoch's records from files in random order, many at once, `turn` by `turn`.

    TFXIO's cycle length is a third of the CPUs, which on a small machine is one file at a time. Its
    interleave hands over single records; `turn` records at a time take half as long.
    """
    names = tf.random.experimental.stateless_shuffle(worker.files(source.files), seed)
    return tf.data.Dataset.from_tensor_slices(names).interleave(
        lambda name: worker.records(source.read_file(name), source.files).batch(turn),
        cycle_length=min(len(source.files), FILES_AT_ONCE),
        num_parallel_calls=min(len(source.files), host.cpu_count()),
        deterministic=True,
    )


def _shuffled(seed: tf.Tensor, index: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    own_seed = tf.random.experimental.stateless_fold_in(seed, index)
    return tf.random.experimental.stateless_shuffle(rows, own_seed)
