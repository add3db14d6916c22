"""What the candidates that read from disk all the time have in common."""

import abc
import weakref

import tensorflow as tf

from tfx_perf.input import candidate
from tfx_perf.input import limits as limits_lib
from tfx_perf.input import source as source_lib


class StreamingCandidate(candidate.Candidate):
    """Holds a few batches or blocks for each dataset that is in use."""

    def __init__(self) -> None:
        self._needed_bytes: weakref.WeakKeyDictionary[tf.data.Dataset, float] = (
            weakref.WeakKeyDictionary()
        )

    @abc.abstractmethod
    def needed_bytes(self, source: source_lib.RecordSource) -> float:
        """Returns about how much a dataset holds while it is read."""

    @abc.abstractmethod
    def stream(
        self, source: source_lib.RecordSource, *, limits: limits_lib.Limits
    ) -> tf.data.Dataset:
        """Returns the dataset."""

    def fresh(self) -> "StreamingCandidate":
        """Returns one of which no dataset is in use."""
        return type(self)()

    @property
    def claimed_bytes(self) -> float:
        """What all datasets that are still in use hold while they are read."""
        return sum(self._needed_bytes.values())

    def build(
        self, source: source_lib.RecordSource, *, limits: limits_lib.Limits
    ) -> tf.data.Dataset:
        """Returns a dataset that streams, if its buffers are within the limits."""
        source.need_parse()
        needed_bytes = self.needed_bytes(source)
        limits.check(needed_bytes)
        dataset = self.stream(source, limits=limits)
        self._needed_bytes[dataset] = needed_bytes
        return dataset
