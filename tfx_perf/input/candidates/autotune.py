"""Leaves tf.data's autotune on."""

import tensorflow as tf

from tfx_perf.input import limits as limits_lib
from tfx_perf.input import source as source_lib
from tfx_perf.input.candidates import wrapper


class Autotune(wrapper.Wrapper):
    """For training code that adds stages of its own after the factory.

    The candidates switch autotune off, as they leave nothing to it. But without it TensorFlow
    also no longer makes a serial `map` parallel, and the user's may be one (decoding
    images, say).
    """

    kind = "autotune"

    @property
    def description(self) -> str:
        """How the inner candidate works, and what is left on."""
        return f"{self.inner.description} Autotune stays on, for what the training code adds."

    def build(
        self, source: source_lib.RecordSource, *, limits: limits_lib.Limits
    ) -> tf.data.Dataset:
        """Returns the inner candidate's dataset with autotune on."""
        options = tf.data.Options()
        options.autotune.enabled = True
        return self.inner.build(source, limits=limits).with_options(options)
