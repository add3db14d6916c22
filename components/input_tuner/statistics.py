"""TFDV statistics of the default's output and the tuned one's, side by side.

An evidence that people can look at, beside the fingerprints: the files that `compare` writes are
for `tfdv.load_stats_binary` and `tfdv.visualize_statistics`.
"""

import collections
import logging
import math
import os
import time
from collections.abc import Iterator
from typing import Any, TypeAlias

import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from tfx_perf.components.input_tuner import tfdv_statistics
from tfx_perf.input.proof import statistics_comparison

_LOGGER = logging.getLogger(__name__)
_TOLERANCE = 1e-6  # of what depends on the order of summation, relative
# Of more distinct values TFDV gives only so many, and which ones depends on their order.
_EXACTLY_COUNTED_VALUES = 1000
_SHOWN_VALUES = 5

_COMMON = (
    "num_non_missing", "num_missing", "min_num_values", "max_num_values", "tot_num_values",
)  # fmt: skip
_OF_NUMBERS: tuple[str, ...] = ("mean", "std_dev", "num_zeros", "min", "max")
_OF_STRINGS: tuple[str, ...] = ("unique", "invalid_utf8_count")

_Statistics: TypeAlias = statistics_pb2.DatasetFeatureStatistics


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
        deadline = time.monotonic() + seconds / 2
        left = tfdv_statistics.read(default, schema=schema, deadline_seconds=deadline)
        # One more, so that examples too many are seen.
        right = tfdv_statistics.read(tuned.take(left.batches + left.complete), schema=schema)
        target = os.path.join(folder, "statistics")
        for name, reading in (("default", left), ("tuned", right)):
            tfdv_statistics.write(reading.statistics, folder=target, name=name)
    except Exception as error:  # an extra proof must not cost the plan
        _LOGGER.warning("No statistics are compared: %s: %s", type(error).__name__, error)
        return None
    return statistics_comparison.StatisticsComparison(
        example_count=left.statistics.num_examples,
        feature_count=len(left.statistics.features),
        complete=left.complete,
        differences=tuple(_differences(left.statistics, right.statistics)),
    )


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
