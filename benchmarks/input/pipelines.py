"""The hand-written pipelines that InputTuner's choice is compared with."""

from typing import Any

import tensorflow as tf

from benchmarks.input.workloads import workload
from tfx_perf.input.candidates import source as source_lib

_AUTOTUNE = tf.data.AUTOTUNE
_SHUFFLE_RECORDS = 10_000  # TFXIO's default


def guide(
    source: source_lib.RecordSource, decode: workload.Decode | None, *, cached: bool = False
) -> tf.data.Dataset:
    """Returns the pipeline that a careful reader of TensorFlow's performance guide writes.

    "Better performance with the tf.data API" (tensorflow.org/guide/data_performance): parallel
    interleave, parallel vectorized map, prefetch, everything on AUTOTUNE. Its order is not
    deterministic, which is faster.

    Args:
        source: files, options and parser.
        decode: the user's function, in the same map as the parser.
        cached: keep the serialized records in memory, as the guide advises where they fit.
    """
    records = tf.data.Dataset.list_files(list(source.file_patterns), shuffle=True).interleave(
        lambda name: tf.data.TFRecordDataset(name, source.compression),
        cycle_length=_AUTOTUNE,
        num_parallel_calls=_AUTOTUNE,
        deterministic=False,
    )
    if cached:
        records = records.cache()
    return (
        records.shuffle(_SHUFFLE_RECORDS)
        .repeat()
        .batch(source.options.batch_size, drop_remainder=True)
        .map(
            lambda serialized: _decoded(source.parse(serialized), decode),
            num_parallel_calls=_AUTOTUNE,
        )
        .prefetch(_AUTOTUNE)
    )


def serial(source: source_lib.RecordSource, decode: workload.Decode | None) -> tf.data.Dataset:
    """Returns a pipeline without parallelism or prefetch, not even any added by tf.data."""
    batches = (
        tf.data.TFRecordDataset(list(source.files), source.compression)
        .shuffle(_SHUFFLE_RECORDS)
        .repeat()
        .batch(source.options.batch_size, drop_remainder=True)
        .map(lambda serialized: _decoded(source.parse(serialized), decode))
    )
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.map_parallelization = False
    options.experimental_optimization.inject_prefetch = False
    return batches.with_options(options)


def _decoded(batch: Any, decode: workload.Decode | None) -> Any:
    return decode(*batch) if decode else batch
