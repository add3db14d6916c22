"""Turns columns into serialized tf.Examples and their schema."""

from typing import Any

import numpy as np
import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.coders import example_coder

from benchmarks.input.workloads import workload


def encode(columns: workload.Columns) -> list[bytes]:
    """Returns one serialized tf.Example per row, made by the encoder that TFX writes with."""
    arrays = [_lists(column) for column in columns.values()]
    batch = pa.RecordBatch.from_arrays(arrays, list(columns))
    return example_coder.RecordBatchToExamplesEncoder().encode(batch)


def schema_of(columns: workload.Columns, *, ragged: bool) -> schema_pb2.Schema:
    """Returns the schema of the columns: dense ones of shape [1], others of variable length.

    Args:
        columns: as given to `encode`.
        ragged: whether variable length is represented as ragged instead of sparse tensors.
    """
    schema = schema_pb2.Schema(represent_variable_length_as_ragged=ragged)
    for name, column in columns.items():
        feature = schema.feature.add(name=name, type=_type_of(column))
        if isinstance(column, np.ndarray):
            feature.presence.min_fraction = 1
            feature.shape.dim.add(size=1)
    return schema


def _lists(column: Any) -> pa.ListArray:
    if not isinstance(column, np.ndarray):
        return column
    values = pa.array(column)
    if pa.types.is_string(values.type):  # the encoder accepts only bytes
        values = values.cast(pa.binary())
    return pa.ListArray.from_arrays(np.arange(len(column) + 1, dtype=np.int32), values)


def _type_of(column: Any) -> "schema_pb2.FeatureType":
    kind = _lists(column).type.value_type
    if pa.types.is_floating(kind):
        return schema_pb2.FLOAT
    return schema_pb2.INT if pa.types.is_integer(kind) else schema_pb2.BYTES
