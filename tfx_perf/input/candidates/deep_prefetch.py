"""More batches ahead."""

import tensorflow as tf

from tfx_perf.input import limits as limits_lib
from tfx_perf.input import source as source_lib
from tfx_perf.input.candidates import wrapper

_BATCHES = 8


class DeepPrefetch(wrapper.Wrapper):
    """Keeps a fixed number of batches ready, against steps or batches of uneven length."""

    kind = "deep_prefetch"

    @property
    def description(self) -> str:
        """How the inner candidate works, and how many batches are ready."""
        return f"{self.inner.description} {_BATCHES} batches are kept ready."

    def build(
        self, source: source_lib.RecordSource, *, limits: limits_lib.Limits
    ) -> tf.data.Dataset:
        """Returns the inner candidate's dataset with a pinned prefetch."""
        before_bytes = self.claimed_bytes
        dataset = self.inner.build(source, limits=limits).prefetch(_BATCHES)
        ready_bytes = _BATCHES * source.options.batch_size * source.record_bytes
        limits.check(self.claimed_bytes - before_bytes + ready_bytes)
        return dataset
