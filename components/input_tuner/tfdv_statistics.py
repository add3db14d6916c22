"""TFDV's statistics of a dataset's batches, computed in this process."""

import dataclasses
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
from tensorflow_data_validation.statistics import stats_impl, stats_options
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2

from tfx_perf import storage
from tfx_perf.tf_internals.unawaited import unawaited

_ROWS_AT_ONCE = 4096  # TFDV's work per call is large
_PARTS = ("", "(label)", "(weights)")  # of a batch that is a tuple


@dataclasses.dataclass(frozen=True)
class Reading:
    """Statistics of as much of a dataset as was read.

    Attributes:
        statistics: TFDV's, of all features.
        batches: how many batches were read.
        complete: whether the dataset ended within them.
    """

    statistics: statistics_pb2.DatasetFeatureStatistics
    batches: int
    complete: bool


def read(
    dataset: tf.data.Dataset,
    *,
    schema: schema_pb2.Schema | None = None,
    deadline_seconds: float = math.inf,
) -> Reading:
    """Reads a dataset of batches, at least one of them.

    Args:
        dataset: dense, ragged or sparse features, alone or with label and weights.
        schema: tells which integers are categories; None if that is not known.
        deadline_seconds: value of `time.monotonic()` after which no other batch is read.
    """
    options = stats_options.StatsOptions(schema=_categories(schema))
    generators = stats_impl.get_generators(options, in_memory=True)
    states = [generator.create_accumulator() for generator in generators]
    waiting: list[pa.RecordBatch] = []

    def add_waiting() -> None:
        for rows in pa.Table.from_batches(waiting).combine_chunks().to_batches():
            for index, generator in enumerate(generators):
                states[index] = generator.add_input(states[index], rows)
        waiting.clear()

    batches, complete = 0, True
    for batch in unawaited(dataset):
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
    return Reading(found.datasets[0], batches, complete)


def write(
    statistics: statistics_pb2.DatasetFeatureStatistics, *, folder: str, name: str
) -> None:
    """Writes `<name>.pb`, a serialised `DatasetFeatureStatisticsList`, into `folder`."""
    statistics.name = name
    both = statistics_pb2.DatasetFeatureStatisticsList(datasets=[statistics])
    storage.write_bytes(storage.make_folder(folder) / f"{name}.pb", both.SerializeToString())


def _categories(schema: schema_pb2.Schema | None) -> schema_pb2.Schema:
    """Returns the categorical integers alone: other parts need columns as they are in the files."""
    result = schema_pb2.Schema()
    for feature in schema.feature if schema else ():
        if feature.int_domain.is_categorical:
            result.feature.add(
                name=feature.name, type=feature.type, int_domain=feature.int_domain
            )
    return result


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
