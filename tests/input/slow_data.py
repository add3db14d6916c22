"""Datasets and sources that wait at every batch."""

import dataclasses
import time

import tensorflow as tf

from tfx_perf.input.candidates import source as source_lib


def slow(dataset: tf.data.Dataset, seconds: float) -> tf.data.Dataset:
    """Returns the dataset with a wait before each batch."""

    def wait(*batch):
        with tf.control_dependencies([tf.py_function(lambda: time.sleep(seconds), [], [])]):
            return tf.nest.map_structure(tf.identity, batch)

    return dataset.map(wait)


def slowed(source: source_lib.RecordSource, seconds: float) -> source_lib.RecordSource:
    """Returns the source with a default that waits."""
    original = source.default_factory
    return dataclasses.replace(
        source, default_factory=lambda *args: slow(original(*args), seconds)
    )
