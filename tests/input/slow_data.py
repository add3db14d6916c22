"""Datasets, sources and train steps that wait at every batch."""

import dataclasses
import time

import tensorflow as tf

from tfx_perf.input import measure
from tfx_perf.input.candidates import source as source_lib


def slow(dataset: tf.data.Dataset, seconds: float) -> tf.data.Dataset:

    def wait(*batch):
        with tf.control_dependencies([tf.py_function(lambda: time.sleep(seconds), [], [])]):
            return tf.nest.map_structure(tf.identity, batch)

    return dataset.map(wait)


def slowed(source: source_lib.RecordSource, seconds: float) -> source_lib.RecordSource:
    original = source.default_factory
    return dataclasses.replace(source, default_factory=lambda *args: slow(original(*args), seconds))


class Training:
    """A step that takes `step_seconds`, as on an accelerator, and longer if its batch is read.

    The user's own code takes `input_seconds` for each batch.
    """

    def __init__(
        self, source, *, step_seconds=0.0, wait_seconds=0.0, input_seconds=0.0, example_count=None
    ):
        self.batch_size = source.options.batch_size
        self._source = source.replace_options(num_epochs=None)
        self._step_seconds, self._wait_seconds = step_seconds, wait_seconds
        self._input_seconds, self._example_count = input_seconds, example_count
        self._repeated = self._source.default().take(1).cache().repeat()
        self.is_prepared = False

    def prepare(self):
        self.is_prepared = True

    @property
    def default(self):
        return self.dataset(self._source.default_factory)

    def dataset(self, factory):
        source = self._source
        dataset = factory(list(source.file_patterns), source.options, source.schema)
        return slow(dataset, self._input_seconds) if self._input_seconds else dataset

    def trained_example_count(self, split_example_count):
        return self._example_count

    def repeated_batch(self):
        return self._repeated

    def consume(self, dataset):
        take = measure.take_only(dataset)
        waits = 0.0 if dataset is self._repeated else self._wait_seconds

        def train(count):
            take(count)
            time.sleep(count * (self._step_seconds + waits))

        return train
