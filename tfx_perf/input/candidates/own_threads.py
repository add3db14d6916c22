"""A thread pool of the pipeline's own."""

import tensorflow as tf

from tfx_perf.hardware import host
from tfx_perf.input import limits as limits_lib
from tfx_perf.input import source as source_lib
from tfx_perf.input.candidates import wrapper


class OwnThreads(wrapper.Wrapper):
    """Keeps the pipeline out of the thread pool that the training step uses.

    Ops inside of the pipeline use one thread each: its stages are parallel already.
    """

    kind = "own_threads"

    @property
    def description(self) -> str:
        """How the inner candidate works, and on which threads."""
        return f"{self.inner.description} It has threads of its own, one per CPU."

    def build(
        self, source: source_lib.RecordSource, *, limits: limits_lib.Limits
    ) -> tf.data.Dataset:
        """Returns the inner candidate's dataset with options."""
        options = tf.data.Options()
        options.threading.private_threadpool_size = host.cpu_count()
        options.threading.max_intra_op_parallelism = 1
        return self.inner.build(source, limits=limits).with_options(options)
