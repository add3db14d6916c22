"""The code of a user's module, an `_input_fn` and a model, as InputTuner's `TrainStep`."""

import tensorflow as tf

from benchmarks.input import models, results
from benchmarks.input.workloads import workload as workload_lib
from tfx_perf.components.input_tuner import training as consumer_lib
from tfx_perf.core import interception
from tfx_perf.input import measure
from tfx_perf.input.candidates import source as source_lib


class UserCode:
    """The user's side of one cell of the benchmark.

    Attributes:
        batch_size: examples in a batch.
        consume: makes an iterator over a dataset and returns a function that trains on a number of
            its batches, or only takes them if there is no model.
        repeated_batch: returns a dataset that repeats one batch from memory endlessly.
    """

    def __init__(
        self, workload: workload_lib.Workload, source: source_lib.RecordSource, *, consumer: str
    ) -> None:
        """Makes the model.

        Args:
            workload: the data set.
            source: its files as a cell has them, with the options that `_input_fn` gives.
            consumer: one of `results.CONSUMERS`.
        """
        self._decode = workload.decode
        self._source = source
        self.batch_size = source.options.batch_size
        data = self.dataset(source.default_factory)
        if consumer == results.NO_MODEL:
            batch = next(iter(data))
            self.consume: measure.Consumer = measure.take_only
            self.repeated_batch = lambda: tf.data.Dataset.from_tensors(batch).repeat()
            self.prepare = lambda: None
        else:
            model = models.compiled(
                data.element_spec, class_count=workload.class_count, kind=consumer
            )
            call = interception.capture_fit(lambda: model.fit(data, steps_per_epoch=1))
            trainer = consumer_lib.TrainConsumer(call)
            self.consume, self.repeated_batch = trainer.consume, trainer.repeated_batch
            self.prepare = trainer.prepare

    def dataset(self, factory: source_lib.Factory) -> tf.data.Dataset:
        """Returns the dataset of the user's `_input_fn`, written as in TFX's examples."""
        source = self._source
        batches = factory(list(source.file_patterns), source.options, source.schema).repeat()
        return batches.map(self._decode) if self._decode else batches

    def trained_example_count(self, split_example_count: int | None) -> float | None:
        """Returns None: the training has no end, so any search pays off."""
        return None
