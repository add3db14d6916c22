"""Writes the examples of a case, and their schema."""

import dataclasses
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2

from .cases import (
    DENSE,
    NESTED,
    SPARSE,
    SPARSE_MATRIX,
    UNIFORM,
    VARIABLE,
    Case,
    Feature,
    File,
    tensor_name,
)

_TYPES = {"int64": schema_pb2.INT, "float": schema_pb2.FLOAT, "bytes": schema_pb2.BYTES}
_INDEX_SIZE = 10
_SPECIAL_FLOATS = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1e-42], np.float32)
_DEFAULTS: dict[str, dict[str, Any]] = {
    "int64": {"int_value": -1},
    "float": {"float_value": 0.5},
    "bytes": {"bytes_value": b"none"},
}


def schema_of(case: Case) -> schema_pb2.Schema:
    schema = schema_pb2.Schema(represent_variable_length_as_ragged=case.is_ragged)
    for feature, names in zip(case.features, case.names, strict=True):
        for name in names:
            _add(schema, feature, name)
    return schema


def _add(schema: schema_pb2.Schema, feature: Feature, name: str) -> None:
    kind = _TYPES[feature.dtype]
    if feature.kind in (SPARSE, SPARSE_MATRIX):
        added = schema.sparse_feature.add(name=name)
        for index in _indices(feature, name):
            column = schema.feature.add(name=index, type=schema_pb2.INT)
            column.int_domain.min, column.int_domain.max = 0, _INDEX_SIZE - 1
            added.index_feature.add(name=index)
        schema.feature.add(name=f"{name}_values", type=kind)
        added.value_feature.name = f"{name}_values"
        return
    column = schema.feature.add(name=name, type=kind)
    if feature.kind == DENSE:
        column.presence.min_fraction = 1
        for size in feature.shape:
            column.shape.dim.add(size=size)
        column.shape.SetInParent()
    if not feature.is_renamed and (feature.kind == VARIABLE or feature.is_required):
        return
    group = schema.tensor_representation_group[""].tensor_representation
    represented = group[tensor_name(name, feature)]
    if feature.kind == DENSE:
        represented.dense_tensor.column_name = name
        represented.dense_tensor.shape.CopyFrom(column.shape)
        if feature.has_default:
            default = _DEFAULTS[feature.dtype]
            represented.dense_tensor.default_value.MergeFrom(
                schema_pb2.TensorRepresentation.DefaultValue(**default)
            )
    elif feature.kind == VARIABLE:
        represented.varlen_sparse_tensor.column_name = name
    else:
        represented.ragged_tensor.feature_path.step.append(name)
        if feature.kind == UNIFORM:
            represented.ragged_tensor.partition.add(uniform_row_length=2)
        else:
            schema.feature.add(name=f"{name}_lengths", type=schema_pb2.INT)
            represented.ragged_tensor.partition.add(row_length=f"{name}_lengths")


def _indices(feature: Feature, name: str) -> list[str]:
    count = 2 if feature.kind == SPARSE_MATRIX else 1
    return [f"{name}_index{number}" for number in range(count)]


class Split:
    """The files of a case in a folder.

    Attributes:
        folder: where they are.
    """

    def __init__(self, case: Case, folder: pathlib.Path) -> None:
        self._case, self.folder, self._version = case, folder, 0

    def write(self) -> None:
        self.folder.mkdir(parents=True)
        self._write(self._case.files)

    def replace(self, content: str) -> None:
        """Writes other contents into the same files; see `Call.content`."""
        self._version += 1
        files = self._case.files
        if content == "other":
            files = tuple(
                dataclasses.replace(file, records=file.records + self._version) for file in files
            )
        self._write(files)

    def paths(self, patterns: tuple[str, ...]) -> list[str]:
        return [self._path(pattern) for pattern in patterns]

    def _path(self, pattern: str) -> str:
        if pattern.isdigit():
            return str(self._file(int(pattern)))
        names = {"*": "*", "even": "part-*[02468]-of*", "none": "nothing-*"}
        return f"{self.folder}/{names[pattern]}"

    def _file(self, number: int) -> pathlib.Path:
        is_gzip = self._case.files[number].is_gzip
        suffix = ".gz" if (self._case.is_gzip if is_gzip is None else is_gzip) else ""
        return self.folder / f"part-{number:05d}-of-{len(self._case.files):05d}{suffix}"

    def _write(self, files: tuple[File, ...]) -> None:
        for number, file in enumerate(files):
            path = self._file(number)
            compression = "GZIP" if path.suffix == ".gz" else ""
            with tf.io.TFRecordWriter(str(path), compression) as writer:
                for example in self._examples(number, file):
                    writer.write(example.SerializeToString())
            _damage(path, file.damage)

    def _examples(self, number: int, file: File) -> Any:
        # These values decide on sizes, and are the same in every version.
        sizes = np.random.default_rng([number, 0])
        contents = np.random.default_rng([number, 1, self._version])
        for row in range(file.records):
            growth = self._case.growth if row >= (file.grows_from or 0) else 1
            growth = growth if file.grows_from is not None else 1
            example = tf.train.Example()
            filled = _Row(example.features.feature, sizes, contents, growth)
            for feature, names in zip(self._case.features, self._case.names, strict=True):
                for name in names:
                    filled.fill(feature, name)
            yield example


@dataclasses.dataclass(frozen=True)
class _Row:
    columns: Any  # its features
    sizes: np.random.Generator  # decides on what is where, and how large
    contents: np.random.Generator  # decides on the values
    growth: int  # how many times larger than others they are

    def fill(self, feature: Feature, name: str) -> None:
        """Adds a feature to the example, unless it is one of those that lack it."""
        if self.sizes.random() < feature.missing:
            return
        count = feature.size
        if feature.kind != DENSE:
            count = int(self.sizes.integers(0, feature.size + 1)) * self.growth
        if feature.kind == UNIFORM:
            count *= 2
        if feature.kind == NESTED:
            lengths = self.sizes.multinomial(count, [0.5, 0, 0.5]) if count else []
            self.columns[f"{name}_lengths"].int64_list.value.extend(lengths)
        if feature.kind in (SPARSE, SPARSE_MATRIX):
            count = min(count, _INDEX_SIZE)
            places = self.sizes.choice(_INDEX_SIZE, count, replace=False)
            for index in _indices(feature, name):
                self.columns[index].int64_list.value.extend(map(int, places))
            name = f"{name}_values"
        column = self.columns[name]
        if feature.dtype == "int64":
            column.int64_list.value.extend(map(int, _ints(feature, count, self.contents)))
        elif feature.dtype == "float":
            column.float_list.value.extend(_floats(feature, count, self.contents))
        else:
            column.bytes_list.value.extend(self._bytes(feature) for _ in range(count))

    def _bytes(self, feature: Feature) -> bytes:
        longest = feature.value_bytes * (self.growth if feature.kind == DENSE else 1)
        if feature.distinct:
            which = int(self.sizes.integers(feature.distinct))
            return np.random.default_rng([which, longest]).bytes(longest)
        return self.contents.bytes(int(self.sizes.integers(longest // 2, longest + 1)))


def _ints(feature: Feature, count: int, contents: np.random.Generator) -> np.ndarray:
    """Returns values whose varints are all as long."""
    if feature.value_bytes >= 10:
        return contents.integers(-(2**63), -1, count)
    low, high = 2 ** (7 * (feature.value_bytes - 1)), 2 ** (7 * feature.value_bytes)
    low = 0 if feature.value_bytes == 1 else low
    return contents.integers(low, low + feature.distinct if feature.distinct else high, count)


def _floats(feature: Feature, count: int, contents: np.random.Generator) -> np.ndarray:
    if feature.distinct:
        return contents.choice(_SPECIAL_FLOATS[: feature.distinct], count)
    return contents.standard_normal(count, np.float32)


def _damage(path: pathlib.Path, kind: str) -> None:
    content = path.read_bytes()
    if kind == "truncated":
        path.write_bytes(content[:-7])
    elif kind == "garbage":
        path.write_bytes(b"this is no record file")
    elif kind == "flipped" and content:
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :])
    elif kind == "no_bytes":
        path.write_bytes(b"")
