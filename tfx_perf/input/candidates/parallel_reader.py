"""What a careful engineer writes by hand."""

import math

import tensorflow as tf

from tfx_perf.hardware import host
from tfx_perf.input import limits as limits_lib
from tfx_perf.input import source as source_lib
from tfx_perf.input.building import batching, sharding
from tfx_perf.input.candidates import streaming
from tfx_perf.tf_data import datasets

_FILES_AT_ONCE = 16
_BYTES_PER_TURN = 2**18
_RECORDS_PER_TURN = (16, 64)  # at least, at most
_RECORDS_PER_BUFFER = 64
_BUFFER_BYTES = (2**20, 2**23)  # at least, at most
_BATCHES_AHEAD = 2


class ParallelReader(streaming.StreamingCandidate):
    """The default's pipeline with its stages parallel, and explicit values for each.

    It keeps the default's sliding shuffle buffer and needs no more memory than that. For large
    records, of which a block of `block_reader` would be too much to hold.
    """

    name = "parallel_reader"
    description = "Files read in parallel, the default's shuffle, and one parallel parse."

    def needed_bytes(self, source: source_lib.RecordSource) -> float:
        """Returns what the shuffle buffer and the batches under way take."""
        options = source.options
        shuffling = options.shuffle_buffer_size if options.shuffle else 0
        unparsed = min(shuffling, source.estimated_count)
        epochs = math.inf if source.is_endless else options.num_epochs
        count = source.estimated_count * epochs
        # Each CPU parses a batch, and another is being filled; those that are parsed wait, and
        # one is in use.
        unparsed += min(options.batch_size * (host.cpu_count() + 1), count)
        parsed = min(options.batch_size * (host.cpu_count() + _BATCHES_AHEAD + 1), count)
        high_bytes = source.record_sizes.high_bytes
        return unparsed * high_bytes + parsed * source.high_example_bytes

    def stream(
        self, source: source_lib.RecordSource, *, limits: limits_lib.Limits
    ) -> tf.data.Dataset:
        """Returns a dataset that holds a shuffle buffer and a few batches."""
        parse = source.need_parse()
        options, spec = source.options, source.element_spec
        seeds = batching.epochs(options)

        def records(worker: sharding.Worker) -> tf.data.Dataset:
            if not options.shuffle:
                own = source.records().shard(worker.count, worker.index)
                return own.repeat(options.num_epochs)
            names = worker.files(source.files)
            return seeds.flat_map(
                lambda seed: shuffled_epoch(
                    tf.data.Dataset.from_tensor_slices(
                        tf.random.experimental.stateless_shuffle(names, seed)
                    ),
                    source=source,
                    worker=worker,
                    seed=seed,
                )
            )

        batches = datasets.mapped(
            sharding.split(records).batch(
                options.batch_size, drop_remainder=source.drops_remainder
            ),
            lambda records: batching.with_row_count(parse(records), spec),
            **batching.parallel(),
        ).prefetch(_BATCHES_AHEAD)
        return batching.finished(batches, source)


def shuffled_epoch(
    names: tf.data.Dataset,
    *,
    source: source_lib.RecordSource,
    worker: sharding.Worker | None = None,
    seed: tf.Tensor | None = None,
) -> tf.data.Dataset:
    """Returns the serialised records of some files, shuffled as the default does it.

    Args:
        names: of the files, in the order in which to open them.
        source: the options, and the size of the records.
        worker: reads only its own records; None: all.
        seed: int64, shape [2]; None for another order each time.
    """
    compression, files, record_bytes = source.compression, source.files, source.record_bytes
    buffer_bytes = _between(_BUFFER_BYTES, record_bytes * _RECORDS_PER_BUFFER)

    def records(name: tf.Tensor) -> tf.data.Dataset:
        own = tf.data.TFRecordDataset(name, compression, buffer_size=buffer_bytes)
        return worker.records(own, files) if worker else own

    read = names.interleave(
        records,
        cycle_length=min(len(files), _FILES_AT_ONCE),
        block_length=_between(_RECORDS_PER_TURN, _BYTES_PER_TURN / max(record_bytes, 1)),
        num_parallel_calls=min(len(files), host.cpu_count()),
        deterministic=True,
    )
    buffer_size = source.options.shuffle_buffer_size
    if seed is None:
        return read.shuffle(buffer_size)
    return datasets.shuffled_once(read, buffer_size, seed=seed)


def _between(bounds: tuple[int, int], value: float) -> int:
    low, high = bounds
    return max(low, min(high, int(value)))
