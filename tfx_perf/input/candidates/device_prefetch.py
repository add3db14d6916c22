"""Batches in the accelerator's memory before the step asks for them."""

import tensorflow as tf

from tfx_perf.hardware import devices
from tfx_perf.input import candidate
from tfx_perf.input import limits as limits_lib
from tfx_perf.input import source as source_lib
from tfx_perf.input.candidates import wrapper


class DevicePrefetch(wrapper.Wrapper):
    """Copies the next batch to the accelerator while the step works on the one before.

    TensorFlow wants this to be the last stage, so it suits training code that hands the
    dataset to `fit` as it is. For several replicas `tf.distribute` does the same itself.
    """

    kind = "device_prefetch"

    @property
    def description(self) -> str:
        """How the inner candidate works, and where the batches wait."""
        return f"{self.inner.description} The next batch is copied to the accelerator ahead."

    def build(
        self, source: source_lib.RecordSource, *, limits: limits_lib.Limits
    ) -> tf.data.Dataset:
        """Returns the inner candidate's dataset on the first accelerator."""
        found = devices.accelerators()
        if not found or found[0].device_type == "CPU":
            raise candidate.NotApplicable("there is no accelerator")
        if len(found) > 1 or tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise candidate.NotApplicable("with several replicas tf.distribute prefetches itself")
        batches = self.inner.build(source, limits=limits)
        device = tf.config.list_logical_devices(found[0].device_type)[0].name
        return batches.apply(tf.data.experimental.prefetch_to_device(device))
