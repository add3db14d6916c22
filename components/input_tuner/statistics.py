"""TFDV statistics of the default's output and the tuned one's, side by side.

An evidence that people can look at, beside the fingerprints: the files that `compare` writes are
for `tfdv.load_stats_binary` and `tfdv.visualize_statistics`.
"""

import collections
import dataclasses
import logging
import math
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
from tensorflow_data_validation.statistics import stats_impl, stats_options
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from tfx_perf.input import statistics_comparison

_LOGGER = logging.getLogger(__name__)
_TOLERANCE = 1e-6  # of what depends on the order of summation, relative
_ROWS_AT_ONCE = 4096  # TFDV's work per call is large
# Of more distinct values TFDV gives only so many, and which ones depends on their order.
_EXACTLY_COUNTED_VALUES = 1000
_SHOWN_VALUES = 5
_PARTS = ("", "(label)", "(weights)")  # of a batch that is a tuple

_COMMON = (
    "num_non_missing", "num_missing", "min_num_values", "max_num_values", "tot_num_values",
)  # fmt: skip
_OF_NUMBERS = ("mean", "std_dev", "num_zeros", "min", "max")
_OF_STRINGS = ("unique", "invalid_utf8_count")

_Statistics = statistics_pb2.DatasetFeatureStatistics


@dataclasses.dataclass(frozen=True)
class _Reading:
    statistics: _Statistics
    batches: int
    complete: bool


def compare(
    default: tf.data.Dataset,
    tuned: tf.data.Dataset,
    *,
    folder: str,
    seconds: float,
    schema: schema_pb2.Schema | None = None,
) -> statistics_comparison.StatisticsComparison | None:
    """Computes and writes the statistics of two datasets and returns how they differ.

    Reads all of the default, or as many of its first batches as half of `seconds` allows, and as
    much of the tuned dataset. Both must be finite, hold one epoch, and be unshuffled unless an
    epoch is sure to be read in time. Quantiles and histograms are written but not compared:
    TFDV's are approximations that depend on the order.

    Args:
        default: batches of TFXIO's pipeline.
        tuned: batches of the same size of the chosen one.
        folder: gets `statistics/default.pb` and `statistics/tuned.pb`, each a serialised
            `DatasetFeatureStatisticsList`.
        seconds: time for both.
        schema: tells which integers are categories; None if that is not known.

    Returns:
        None if TFDV has no statistics for such data; the log says why.
    """
    try:
        options = stats_options.StatsOptions(schema=_categories(schema))
        deadline = time.monotonic() + seconds / 2
        left = _read(default, options, deadline_seconds=deadline)
        # One more, so that examples too many are seen.
        right = _read(tuned.take(left.batches + left.complete), options)
        for name, reading in (("default", left), ("tuned", right)):
            _write(reading.statistics, os.path.join(folder, "statistics"), name)
    except Exception as error:  # an extra proof must not cost the plan
        _LOGGER.warning("No statistics are compared: %s: %s", type(error).__name__, error)
        return None
    return statistics_comparison.StatisticsComparison(
        example_count=left.statistics.num_examples,
        feature_count=len(left.statistics.features),
        complete=left.complete,
        differences=tuple(_differences(left.statistics, right.statistics)),
    )


def _categories(schema: schema_pb2.Schema | None) -> schema_pb2.Schema:
    """Returns the categorical integers alone: other parts need columns as they are in the files."""
    result = schema_pb2.Schema()
    for feature in schema.feature if schema else ():
        if feature.int_domain.is_categorical:
            result.feature.add(
                name=feature.name, type=feature.type, int_domain=feature.int_domain
            )
    return result


def _read(
    dataset: tf.data.Dataset,
    options: stats_options.StatsOptions,
    *,
    deadline_seconds: float = math.inf,
) -> _Reading:
    generators = stats_impl.get_generators(options, in_memory=True)
    states = [generator.create_accumulator() for generator in generators]
    waiting: list[pa.RecordBatch] = []

    def add_waiting() -> None:
        for rows in pa.Table.from_batches(waiting).combine_chunks().to_batches():
            for index, generator in enumerate(generators):
                states[index] = generator.add_input(states[index], rows)
        waiting.clear()

    batches, complete = 0, True
    for batch in dataset:
        if batches and time.monotonic() > deadline_seconds:
            complete = False
            break
        waiting.append(_to_arrow(batch))
        batches += 1
        if sum(rows.num_rows for rows in waiting) >= _ROWS_AT_ONCE:
            add_waiting()
    if waiting:
        add_waiting()
    found = stats_impl.extract_statistics_output(states, generators)
    return _Reading(found.datasets[0], batches, complete)


def _to_arrow(batch: Any) -> pa.RecordBatch:
    parts = batch if isinstance(batch, tuple) else (batch,)
    columns = {
        name: _list_array(value)
        for prefix, part in zip(_PARTS, parts, strict=False)
        for name, value in _named(part, prefix)
    }
    return pa.record_batch(list(columns.values()), names=list(columns))


def _named(part: Any, name: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(part, Mapping):
        yield name or "(features)", part
        return
    for key in sorted(part):
        yield from _named(part[key], f"{name}/{key}" if name else key)


def _list_array(value: Any) -> pa.LargeListArray:
    """Returns the values of each row, flattened; a row without any is missing (null)."""
    if isinstance(value, tf.SparseTensor):
        values = value.values.numpy()
        lengths = np.bincount(value.indices[:, 0].numpy(), minlength=int(value.dense_shape[0]))
        ends = np.cumsum(lengths)
    elif isinstance(value, tf.RaggedTensor):
        ends = value.row_splits.numpy()[1:]
        while isinstance(value := value.values, tf.RaggedTensor):
            ends = value.row_splits.numpy()[ends]
        values = value.numpy()
        ends = ends * math.prod(values.shape[1:])
    else:
        values = value.numpy()
        ends = (1 + np.arange(values.shape[0])) * math.prod(values.shape[1:])
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    missing = np.append(np.diff(offsets) == 0, False)
    if values.dtype == bool:  # which TFDV does not know
        values = values.astype(np.uint8)
    kind = pa.large_binary() if values.dtype == object else None
    return pa.LargeListArray.from_arrays(
        pa.array(offsets, mask=missing), pa.array(values.ravel(), type=kind)
    )


def _write(statistics: _Statistics, folder: str, name: str) -> None:
    statistics.name = name
    tf.io.gfile.makedirs(folder)
    both = statistics_pb2.DatasetFeatureStatisticsList(datasets=[statistics])
    with tf.io.gfile.GFile(os.path.join(folder, f"{name}.pb"), "wb") as file:
        file.write(both.SerializeToString())


def _differences(
    default: _Statistics, tuned: _Statistics
) -> Iterator[statistics_comparison.StatisticDifference]:
    lefts, rights = _values(default), _values(tuned)
    for feature, statistic in sorted(lefts.keys() | rights.keys()):
        left, right = (side.get((feature, statistic)) for side in (lefts, rights))
        scale = 0.0
        if statistic in ("mean", "std_dev"):
            # A mean near zero has the rounding errors of the values around it.
            scale = max(abs(lefts.get((feature, other), 0)) for other in ("mean", "std_dev"))
        if not _same(left, right, scale):
            yield statistics_comparison.StatisticDifference(
                feature=feature,
                statistic=statistic,
                default=_text(left, right),
                tuned=_text(right, left),
            )


def _text(value: Any, other: Any) -> str:
    """Returns a statistic as text; of counts, some of those that the other side has not."""
    if value is None:
        return ""
    if isinstance(value, collections.Counter) and other:
        differing = sorted(key for key in {*value, *other} if value[key] != other[key])
        return ", ".join(f"{key}: {value[key]:.0f}" for key in differing[:_SHOWN_VALUES])
    return str(value)


def _same(left: Any, right: Any, scale: float) -> bool:
    if left == right:
        return True
    if not (isinstance(left, float) and isinstance(right, float)):
        return False
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    return math.isclose(left, right, rel_tol=0, abs_tol=_TOLERANCE * scale)


def _values(statistics: _Statistics) -> dict[tuple[str, str], Any]:
    """Returns what can be compared, by feature and statistic."""
    found: dict[tuple[str, str], Any] = {("", "num_examples"): statistics.num_examples}
    for feature in statistics.features:
        name = feature.name or "/".join(feature.path.step)
        found[name, "type"] = statistics_pb2.FeatureNameStatistics.Type.Name(feature.type)
        if feature.HasField("string_stats"):
            own, keys = feature.string_stats, _OF_STRINGS
            if own.unique <= _EXACTLY_COUNTED_VALUES:
                found[name, "value_counts"] = _counts(own.rank_histogram)
        else:
            own, keys = feature.num_stats, _OF_NUMBERS
            found[name, "num_nan"] = sum(part.num_nan for part in own.histograms[:1])
        found |= {(name, key): getattr(own, key) for key in keys}
        found |= {(name, key): getattr(own.common_stats, key) for key in _COMMON}
    return found


def _counts(histogram: statistics_pb2.RankHistogram) -> collections.Counter[str]:
    counts: collections.Counter[str] = collections.Counter()
    for value in histogram.buckets:
        counts[value.label] += value.sample_count  # values that are no text share a label
    return counts
