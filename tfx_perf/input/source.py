"""What an input pipeline reads: files, schema, options and TFXIO's own factory."""

import dataclasses
import functools
import zlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_perf.input import candidate

Factory = Callable[[Any, Any, Any], tf.data.Dataset]
Parse = Callable[[tf.Tensor], Any]
Parser = Callable[[frozenset[str]], Parse]

_SAMPLED_RECORDS = 256
READER_BUFFER_BYTES = 2**20
_EXPANSION_SAMPLE_BYTES = 2**20
_FRAME_BYTES = 16  # length and checksums around each record of a TFRecord file
_GZIP_WINDOW_BITS = 31  # zlib's number for a gzip header
_TRIED_FILES = 256  # more than tf.data reads in turns


@dataclasses.dataclass(frozen=True)
class RecordSource:
    """The arguments of one call of a dataset factory, and what else a candidate needs.

    Everything that belongs to TFX comes in through this object, so that the candidates need
    no import of it.

    Attributes:
        file_patterns: globs of the record files, in the user's order.
        default_factory: `(file_patterns, options, schema) -> dataset`, as TFX gives it to
            the user's code.
        options: a NamedTuple with the fields of tfx_bsl's `TensorFlowDatasetOptions`.
        schema: passed on to `default_factory`, never looked into.
        parser: given the names of features to leave out, returns the function that turns
            serialised records (string tensor of shape [n]) into the structure that the default
            yields for them; None if nobody knows how.
        unused_features: features that are neither parsed nor in `element_spec`.
    """

    file_patterns: tuple[str, ...]
    default_factory: Factory
    options: Any
    schema: Any = None
    parser: Parser | None = None
    unused_features: frozenset[str] = frozenset()

    @functools.cached_property
    def parse(self) -> Parse | None:
        """Turns serialised records into the used features; None if nobody knows how."""
        return self.parser(self.unused_features) if self.parser else None

    def need_parse(self) -> Parse:
        """Returns `parse`.

        Raises:
            NotApplicable: nobody knows how to parse.
        """
        if self.parse is None:
            raise candidate.NotApplicable("nobody knows how to parse these records")
        return self.parse

    @functools.cached_property
    def files(self) -> tuple[str, ...]:
        """The files that the patterns match, sorted."""
        return tuple(sorted({f for p in self.file_patterns for f in tf.io.gfile.glob(p)}))

    @functools.cached_property
    def total_bytes(self) -> int:
        """Size of the files on disk."""
        return sum(tf.io.gfile.stat(name).length for name in self.files)

    @functools.cached_property
    def compression(self) -> str:
        """`GZIP` or the empty string, by the files' names as TFXIO decides.

        Raises:
            NotApplicable: only some of the names end in `.gz`; TFXIO fails on that too.
        """
        examples = {"GZIP" if name.endswith(".gz") else "": name for name in self.files}
        if len(examples) > 1:
            raise candidate.NotApplicable(
                f"{examples['GZIP']} is gzip by its name and {examples['']} is not"
            )
        return next(iter(examples), "")

    @functools.cached_property
    def record_bytes(self) -> float:
        """Mean size of a serialised record, over the first 256.

        Raises:
            NotApplicable: there are no examples.
        """
        lengths = [
            len(record)
            for record in self.records().take(_SAMPLED_RECORDS).as_numpy_iterator()
        ]
        if not lengths:
            raise candidate.NotApplicable("there are no examples")
        return sum(lengths) / len(lengths)

    @functools.cached_property
    def stored_record_bytes(self) -> float:
        """Mean size of an example in its file, by the beginning of the largest file."""
        framed_bytes = self.record_bytes + _FRAME_BYTES
        if not self.compression:
            return framed_bytes
        largest = max(self.files, key=lambda name: tf.io.gfile.stat(name).length)
        with tf.io.gfile.GFile(largest, "rb") as file:
            sample = file.read(_EXPANSION_SAMPLE_BYTES)
        decompressor = zlib.decompressobj(_GZIP_WINDOW_BITS)
        expanded = decompressor.decompress(sample)
        read_bytes = len(sample) - len(decompressor.unused_data)
        return framed_bytes * read_bytes / len(expanded)

    @property
    def estimated_count(self) -> float:
        """About how many examples there are, by the size of the files."""
        return self.total_bytes / self.stored_record_bytes

    @functools.cached_property
    def element_spec(self) -> Any:
        """Element spec of the default's dataset, without the unused features."""
        spec = self.default().element_spec
        if not self.unused_features:
            return spec
        features, *label = spec if isinstance(spec, tuple) else (spec,)
        used = {name: features[name] for name in features if name not in self.unused_features}
        return (used, *label) if label else used

    @property
    def drops_remainder(self) -> bool:
        """Whether TFXIO batches with `drop_remainder`: asked for, or endless."""
        return self.options.drop_final_batch or self.options.num_epochs is None

    @property
    def identity(self) -> tuple[Any, ...]:
        """What decides on the content of the examples; batching and shuffling do not."""
        return (self.files, str(self.schema), self.options.label_key, self.unused_features)

    def default(self) -> tf.data.Dataset:
        """Returns the dataset of TFXIO's own factory, untouched."""
        return self.default_factory(list(self.file_patterns), self.options, self.schema)

    def replace_options(self, **options: Any) -> "RecordSource":
        """Returns the same source with some options replaced."""
        return dataclasses.replace(self, options=self.options._replace(**options))

    def records(self) -> tf.data.Dataset:
        """Returns one epoch of serialised records, in the default's unshuffled order.

        TFXIO reads some files in turns, a record of each; how many is up to tf.data. Its parallel
        interleave hands every record from thread to thread, which takes three times as
        long as this one, for the same order.
        """
        files = tf.data.Dataset.list_files(list(self.file_patterns), shuffle=False)
        compression = self.compression
        return files.interleave(
            lambda name: tf.data.TFRecordDataset(
                name, compression, buffer_size=READER_BUFFER_BYTES
            ),
            cycle_length=_files_in_turns(self.options.reader_num_threads),
        )


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
    return numbers.index(0, 1)  # where the first comes for the second time
