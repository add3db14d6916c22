"""Reading, shuffling and parsing on the workers of a tf.data service."""

import json
import os

import tensorflow as tf

from tfx_perf.input import candidate
from tfx_perf.input import limits as limits_lib
from tfx_perf.input import source as source_lib
from tfx_perf.input.building import batching, dispatcher
from tfx_perf.input.candidates import parallel_reader, wrapper
from tfx_perf.tf_internals import random_state

_CONNECT_SECONDS = 2.0
_BLOCKS_AHEAD = 2
_SERVICE = tf.data.experimental.service


class Service(wrapper.Wrapper):
    """Hands out files to the service's workers; each file goes to one of them in an epoch.

    The workers must see the files under the same names. They send parsed blocks, uncompressed,
    and the trainer only cuts them into batches. Audibert et al., "tf.data service: A Case for
    Disaggregating ML Input Data Processing", 2023, section 3.
    """

    kind = "service"

    @property
    def description(self) -> str:
        """How the inner candidate works, and where."""
        return f"{self.inner.description} It runs on the workers of a tf.data service."

    def build(
        self, source: source_lib.RecordSource, *, limits: limits_lib.Limits
    ) -> tf.data.Dataset:
        """Returns a dataset that holds a few blocks here, and shuffle buffers on the workers."""
        self._check(source, limits)
        options = source.options
        rows = batching.rows_per_block(source.record_bytes)
        limits.check(_BLOCKS_AHEAD * rows * source.record_bytes)
        names = tf.data.Dataset.from_tensor_slices(list(source.files)).shuffle(len(source.files))
        blocks = (
            parallel_reader.shuffled_epoch(names, source=source)
            .batch(rows)
            .map(source.parse)
            .apply(
                _SERVICE.distribute(
                    _SERVICE.ShardingPolicy.DYNAMIC,
                    service=self.parameters.service_address,
                    compression=None,
                )
            )
        )
        batches = blocks.repeat(options.num_epochs).prefetch(_BLOCKS_AHEAD)
        final = {"batch_size": options.batch_size, "drop_remainder": source.drops_remainder}
        return batching.finished(batches.rebatch(**final), source)

    def _check(self, source: source_lib.RecordSource, limits: limits_lib.Limits) -> None:
        address = self.parameters.service_address
        if address is None:
            raise candidate.NotApplicable("no dispatcher of a tf.data service is given")
        if not isinstance(self.inner, parallel_reader.ParallelReader):
            raise candidate.NotApplicable(f"a tf.data service cannot run {self.inner.name}")
        source.need_parse()
        if not source.options.shuffle or source.options.shuffle_seed is not None:
            raise candidate.NotApplicable("a tf.data service keeps no order")
        if random_state.global_seed() is not None:
            # The workers start every epoch from one graph, into which the seed is written.
            raise candidate.NotApplicable(
                "with a global seed (tf.random.set_seed) a tf.data service would repeat one order"
            )
        if _training_workers() > 1:
            raise candidate.NotApplicable("each of several training workers would get all examples")
        try:
            seconds = max(0.1, min(_CONNECT_SECONDS, limits.remaining_seconds))
            dispatcher.reach(address, seconds=seconds)
        except (OSError, ValueError) as error:
            raise candidate.NotApplicable(f"no dispatcher answers at {address}: {error}") from error


def _training_workers() -> int:
    """Returns how many processes train together, by the variable that tf.distribute reads."""
    try:
        cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
    except ValueError:  # tf.distribute will complain about it
        return 1
    return sum(len(cluster.get(kind, ())) for kind in ("chief", "worker"))
