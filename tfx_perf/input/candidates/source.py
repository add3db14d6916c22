"""The source of an input pipeline: files, schema, options and TFXIO's own factory."""

import dataclasses
import functools
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfx_perf.core import cache_key, storage
from tfx_perf.input.candidates.candidate import NotApplicable
from tfx_perf.input.candidates.limits import STRING_HEADER_BYTES, tensor_bytes
from tfx_perf.tf_internals import datasets

Factory = Callable[[Any, Any, Any], tf.data.Dataset]
Parse = Callable[[tf.Tensor], Any]

READER_BUFFER_BYTES = 2**20
FRAME_BYTES = 16  # length and checksums around each record of a TFRecord file
_EXPANSION_SAMPLE_BYTES = 2**20
_LIST_RATIO = 24
_GZIP_WINDOW_BITS = 31  # zlib's number for a gzip header
_TRIED_FILES = 256  # more than any cycle length that tf.data chooses

# The sample of records from whose size everything else is estimated.
_SAMPLED_FILES = 8
_SAMPLED_RECORDS = 512  # per file
_SAMPLED_BYTES = 2**20  # per file
_RECORDS_AT_ONCE = 64
_PARSED_BYTES = 2**16


class RowSize(NamedTuple):
    """The most that a row takes: `padding_bytes`, plus `ratio` for each byte of its record."""

    padding_bytes: int
    ratio: int

    def of(self, records: tf.Tensor) -> tf.Tensor:
        """Returns the sizes of the rows of serialized records, int64."""
        return self.padding_bytes + self.ratio * tf.cast(tf.strings.length(records), tf.int64)


RECORD_SIZE = RowSize(padding_bytes=STRING_HEADER_BYTES, ratio=1)
"""The size of a serialized record."""


class FileState(NamedTuple):
    """The current state of a file; a replacement has another inode and change time."""

    path: str
    size_bytes: int
    modified_nanoseconds: int
    inode: int = 0
    changed_nanoseconds: int = 0

    @classmethod
    def of(cls, path: str) -> "FileState":
        """Returns the state of a file; tf.errors.OpError or OSError if it cannot be reached."""
        if storage.is_remote(path):
            status = tf.io.gfile.stat(path)
            return cls(path, status.length, status.mtime_nsec)
        local = os.stat(path)  # TensorFlow passes on only whole seconds
        return cls(path, local.st_size, local.st_mtime_ns, local.st_ino, local.st_ctime_ns)


@dataclasses.dataclass(frozen=True)
class RecordSource:
    """The arguments of one call of a dataset factory; candidates need no import of TFX.

    Attributes:
        file_patterns: globs of the record files, in the user's order.
        default_factory: `(file_patterns, options, schema) -> dataset`, as the user's code gets it.
        options: a NamedTuple with the fields of tfx_bsl's `TensorFlowDatasetOptions`.
        schema: passed on to `default_factory`, never inspected.
        parse: turns serialized records (string tensor of shape [n]) into the structure that the
            default yields for them; None if no parser is known.
    """

    file_patterns: tuple[str, ...]
    default_factory: Factory
    options: Any
    schema: Any = None
    parse: Parse | None = None

    def need_parse(self) -> Parse:
        """Returns `parse`; NotApplicable if there is none."""
        if self.parse is None:
            raise NotApplicable("no parser for these records is known")
        return self.parse

    @functools.cached_property
    def files(self) -> tuple[str, ...]:
        """The files that the patterns match, sorted; one that two patterns match comes twice."""
        with tf.init_scope():
            names = tf.io.matching_files(list(self.file_patterns)).numpy()
        return tuple(name.decode() for name in names)

    @functools.cached_property
    def file_states(self) -> tuple[FileState, ...]:
        """The files as they are now."""
        states = {path: FileState.of(path) for path in dict.fromkeys(self.files)}
        return tuple(states[path] for path in self.files)

    @property
    def files_digest(self) -> str:
        """A digest of the current state of the files, for a plan."""
        return cache_key.digest(repr([tuple(state) for state in self.file_states]).encode())

    @functools.cached_property
    def total_bytes(self) -> int:
        """Size of the files on disk."""
        return sum(state.size_bytes for state in self.file_states)

    @functools.cached_property
    def compression(self) -> str:
        """`GZIP` or empty, by the files' names; NotApplicable if they differ (TFXIO fails too)."""
        examples = {"GZIP" if name.endswith(".gz") else "": name for name in self.files}
        if len(examples) > 1:
            raise NotApplicable(f"{examples['GZIP']} is gzip by its name and {examples['']} is not")
        return next(iter(examples), "")

    @functools.cached_property
    def record_bytes(self) -> float:
        """Mean size of serialized records, from some files; NotApplicable without examples."""
        with tf.init_scope():
            mean_bytes = mean_record_bytes(self.files, compression=self.compression)
        if mean_bytes is None:
            raise NotApplicable("there are no examples")
        return mean_bytes

    @functools.cached_property
    def example_size(self) -> RowSize:
        """The most that a parsed example takes; in a list 8 bytes per value, 16 for its place."""
        parts = tf.nest.flatten(self.element_spec)
        dense = [part for part in parts if isinstance(part, tf.TensorSpec)]
        return RowSize(
            padding_bytes=sum(map(_dense_bytes, dense)),
            ratio=1 if len(dense) == len(parts) else _LIST_RATIO,
        )

    @functools.cached_property
    def example_bytes(self) -> float:
        """Mean size of a parsed example: from a sample if there are lists, otherwise the most."""
        padding_bytes, ratio = self.example_size
        if ratio == 1 or self.parse is None:
            return padding_bytes + ratio * self.record_bytes
        read, parsed = 0, 0
        with tf.init_scope():
            for records in beginnings(
                self.files, compression=self.compression, record_bytes=self.record_bytes
            ):
                read += int(tf.size(records))
                parsed += tensor_bytes(self.parse(records))
        return parsed / read

    @property
    def expected_bytes(self) -> float:
        """Approximate size of the records of all files, with their frames."""
        return self.estimated_count * (self.record_bytes + FRAME_BYTES)

    @functools.cached_property
    def stored_record_bytes(self) -> float:
        """Mean size of an example in its file, from the beginning of the largest file."""
        framed_bytes = self.record_bytes + FRAME_BYTES
        if not self.compression:
            return framed_bytes
        largest = max(self.file_states, key=lambda state: state.size_bytes).path
        with tf.io.gfile.GFile(largest, "rb") as file:
            sample = file.read(_EXPANSION_SAMPLE_BYTES)
        decompressor = zlib.decompressobj(_GZIP_WINDOW_BITS)
        expanded = decompressor.decompress(sample)
        read_bytes = len(sample) - len(decompressor.unused_data)
        return framed_bytes * read_bytes / len(expanded)

    @property
    def estimated_count(self) -> float:
        """Approximate number of examples, from the size of the files."""
        return self.total_bytes / self.stored_record_bytes

    @functools.cached_property
    def element_spec(self) -> Any:
        """Element spec of the default's dataset."""
        return self.default().element_spec

    @property
    def is_endless(self) -> bool:
        """Whether the epochs never end; `repeat` also does so for any negative number."""
        return self.options.num_epochs is None or self.options.num_epochs < 0

    @property
    def drops_remainder(self) -> bool:
        """Whether TFXIO batches with `drop_remainder`: asked for, or endless."""
        return self.options.drop_final_batch or self.options.num_epochs is None

    @property
    def _static_batch_size(self) -> int | None:
        """The batch size that the default's element spec has; None if it leaves that open."""
        return self.options.batch_size if self.drops_remainder else None

    @property
    def identity(self) -> tuple[Any, ...]:
        """The key to the examples and their order as long as no file changes."""
        options = self.options
        order = self.files, _files_in_turns(options.reader_num_threads)
        return (*order, str(self.schema), options.label_key)

    def default(self) -> tf.data.Dataset:
        """Returns the dataset of TFXIO's own factory, untouched."""
        return self.default_factory(list(self.file_patterns), self.options, self.schema)

    def replace_options(self, **options: Any) -> "RecordSource":
        """Returns the same source with other options, keeping cached facts about the files."""
        replaced = dataclasses.replace(self, options=self.options._replace(**options))
        if replaced.options.label_key == self.options.label_key:
            fields = {field.name for field in dataclasses.fields(self)}
            known = {name: value for name, value in vars(self).items() if name not in fields}
            spec = known.pop("element_spec", None)
            if spec is not None and replaced._static_batch_size == self._static_batch_size:
                known["element_spec"] = spec
            elif spec is not None and not replaced.drops_remainder:
                known["element_spec"] = tf.nest.map_structure(_with_open_batch_size, spec)
            vars(replaced).update(known)
        return replaced

    def records(self) -> tf.data.Dataset:
        """Returns one unshuffled epoch of records, in a third of the time of TFXIO's interleave."""
        files = tf.data.Dataset.list_files(list(self.file_patterns), shuffle=False)
        return files.interleave(
            self.read_file, cycle_length=_files_in_turns(self.options.reader_num_threads)
        )

    def read_file(self, name: tf.Tensor) -> tf.data.Dataset:
        """Returns the serialized records of one of the files."""
        return tf.data.TFRecordDataset(name, self.compression, buffer_size=READER_BUFFER_BYTES)


def mean_record_bytes(files: Sequence[str], *, compression: str) -> float | None:
    """Returns the mean size of the records at the beginnings of some files; None without any."""
    chosen = _spread(files)
    for names in (chosen, [name for name in files if name not in chosen]):
        lengths = [length for name in names for length in _lengths(name, compression=compression)]
        if lengths:
            return float(np.mean(lengths))
    return None


def beginnings(
    files: Sequence[str], *, compression: str, record_bytes: float
) -> Iterator[tf.Tensor]:
    """Yields serialized records, 64 KiB or one record, from the beginning of each of some files."""
    count = max(1, min(_RECORDS_AT_ONCE, int(_PARSED_BYTES / max(record_bytes, 1))))
    has_records = False
    for names in (_spread(files), files):
        if not has_records:
            for name in names:
                for vector in tf.data.TFRecordDataset(name, compression).batch(count).take(1):
                    has_records = True
                    yield vector


def _spread(files: Sequence[str]) -> list[str]:
    places = np.unique(np.linspace(0, len(files) - 1, num=_SAMPLED_FILES, dtype=int))
    return [files[place] for place in places] if files else []


def _lengths(file: str, *, compression: str) -> list[int]:
    records = tf.data.TFRecordDataset(file, compression, buffer_size=_SAMPLED_BYTES)
    sizes: list[int] = []
    # One at a time: a vector of a few large records would exceed the limit.
    for record in datasets.without_autotune(records.take(_SAMPLED_RECORDS)):
        sizes.append(len(record.numpy()))
        if sum(sizes) > _SAMPLED_BYTES:
            break
    return sizes


def _with_open_batch_size(spec: tf.TypeSpec) -> tf.TypeSpec:
    """Returns the spec of the same rows if the last batch may be smaller."""
    shape = tf.TensorShape([None]).concatenate(spec.shape[1:])
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.RaggedTensorSpec(shape, spec.dtype, spec.ragged_rank, spec.row_splits_dtype)
    return type(spec)(shape, spec.dtype)


def _dense_bytes(spec: tf.TensorSpec) -> int:
    """Returns the size of a row without the content of strings."""
    width = spec.shape[1:].num_elements() or 1
    return width * (STRING_HEADER_BYTES if spec.dtype == tf.string else spec.dtype.size)


@functools.cache
def _files_in_turns(num_parallel_calls: int) -> int:
    """Returns the cycle length that tf.data chooses for an interleave, found by trying it."""
    with tf.init_scope():
        order = tf.data.Dataset.range(_TRIED_FILES).interleave(
            lambda index: tf.data.Dataset.from_tensors(index).repeat(2),
            num_parallel_calls=num_parallel_calls,
            deterministic=True,
        )
        numbers = list(order.take(_TRIED_FILES + 1).as_numpy_iterator())
    return numbers.index(0, 1)  # where the first element comes for the second time
