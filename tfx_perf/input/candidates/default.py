"""TFXIO's own pipeline."""

import tensorflow as tf

from tfx_perf.input import candidate
from tfx_perf.input import limits as limits_lib
from tfx_perf.input import source as source_lib


class Default(candidate.Candidate):
    """What the user has now; every other candidate is compared with it."""

    name = "default"
    description = "TFXIO's own dataset factory, untouched."

    def build(
        self, source: source_lib.RecordSource, *, limits: limits_lib.Limits
    ) -> tf.data.Dataset:
        """Returns the default's dataset; nothing is held, so no limit applies."""
        del limits
        return source.default()
