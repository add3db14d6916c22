"""Reading, shuffling and parsing on the workers of a tf.data service."""

import socket

import tensorflow as tf

from tfx_perf.config import base
from tfx_perf.core import workers
from tfx_perf.hardware import host
from tfx_perf.input.candidates import batching
from tfx_perf.input.candidates.block_reader import FILES_AT_ONCE
from tfx_perf.input.candidates.candidate import Candidate, NotApplicable
from tfx_perf.input.candidates.limits import Limits
from tfx_perf.input.candidates.source import RecordSource
from tfx_perf.tf_internals import random_state

_CONNECT_SECONDS = 2.0
_RECORDS_A_TURN = 16  # from each file; one at a time takes twice as long
_BLOCKS_AHEAD = 2
_SERVICE = tf.data.experimental.service


class Service(Candidate):
    """Hands out files to the service's workers, which must see them under the same names.

    The workers shuffle as the default does and send parsed, uncompressed blocks. See Audibert et
    al., "tf.data service: A Case for Disaggregating ML Input Data Processing", 2023, section 3.
    """

    name = "service"
    description = "The workers of a tf.data service read, shuffle and parse."

    def __init__(self, address: str | None) -> None:
        self._address = address

    @tf.autograph.experimental.do_not_convert  # converting our code would read whole source files
    def build(self, source: RecordSource, *, limits: Limits) -> tf.data.Dataset:
        """Returns a dataset that holds a few blocks here, and shuffle buffers on the workers."""
        self._check(source, limits)
        options = source.options
        rows = batching.rows_per_block(source.record_bytes)
        limits.check(_BLOCKS_AHEAD * rows * source.record_bytes)
        names = tf.data.Dataset.from_tensor_slices(list(source.files)).shuffle(len(source.files))
        records = names.interleave(
            source.read_file,
            cycle_length=min(len(source.files), FILES_AT_ONCE),
            block_length=_RECORDS_A_TURN,
            num_parallel_calls=min(len(source.files), host.cpu_count()),
        )
        blocks = (
            records.shuffle(options.shuffle_buffer_size)
            .batch(rows)
            .map(source.parse)
            .apply(
                _SERVICE.distribute(
                    _SERVICE.ShardingPolicy.DYNAMIC, service=self._address, compression=None
                )
            )
        )
        batches = blocks.repeat(options.num_epochs).prefetch(_BLOCKS_AHEAD)
        final = {"batch_size": options.batch_size, "drop_remainder": source.drops_remainder}
        return batching.finished(batches.rebatch(**final), source)

    def _check(self, source: RecordSource, limits: Limits) -> None:
        if self._address is None:
            raise NotApplicable("no dispatcher of a tf.data service is given")
        source.need_parse()
        if not source.options.shuffle or source.options.shuffle_seed is not None:
            raise NotApplicable("a tf.data service keeps no order")
        if random_state.global_seed() is not None:
            # The workers start every epoch from one graph, into which the seed is written.
            raise NotApplicable(
                "with a global seed (tf.random.set_seed) a tf.data service would repeat one order"
            )
        if len(workers.these_hosts()) > 1:
            raise NotApplicable("each of several training workers would get all examples")
        try:  # TensorFlow itself would wait for the dispatcher for hours
            seconds = max(0.1, min(_CONNECT_SECONDS, limits.remaining_seconds))
            socket.create_connection(base.grpc_address(self._address), seconds).close()
        except (OSError, ValueError) as error:
            raise NotApplicable(f"no dispatcher answers at {self._address}: {error}") from error
