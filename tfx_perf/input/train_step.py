"""What the search must know of the user's training."""

from typing import Protocol

import tensorflow as tf

from tfx_perf import errors
from tfx_perf.input import source as source_lib
from tfx_perf.input.timing import measure


class StepFailedError(errors.MeasurementError):
    """The user's training step raised something; the input can be measured alone."""


class TrainStep(Protocol):
    """The user's training step as a consumer of input.

    Implemented where the training code can be run (`components/input_tuner`, the benchmarks);
    the search only uses it.

    Attributes:
        batch_size: examples in a batch of the user's training.
    """

    batch_size: int

    def prepare(self) -> None:
        """Makes the step ready to be timed, which may take seconds; the rest needs no step.

        Raises:
            StepFailedError: it raised something.
        """

    def trained_example_count(self, split_example_count: int | None) -> float | None:
        """Returns how many examples the user's training reads; None if that is not known.

        Args:
            split_example_count: examples in the split; None if that is not known.
        """

    def dataset(self, factory: source_lib.Factory) -> tf.data.Dataset:
        """Returns the endless dataset that `fit` would get if the user's code used `factory`."""

    def repeated_batch(self) -> tf.data.Dataset:
        """Returns one batch of the user's data from memory, for ever."""

    def consume(self, dataset: tf.data.Dataset) -> measure.Take:
        """Returns what trains on that many batches of a new iterator; a `measure.Consumer`.

        Call `prepare` before.
        """
