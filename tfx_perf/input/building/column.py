"""One column of a split while it is read, chunk by chunk."""

import tensorflow as tf

from tfx_perf.input import candidate
from tfx_perf.input.building import assembling, tensor_size
from tfx_perf.input.building.dictionary_encoding import DictionaryEncoding


class Column:
    """The pieces of a column, in parts of which each will be one tensor.

    Of a dense column they are its values; of a ragged or sparse one the lengths of its lists
    (int64, nested ones outermost first), then the values.

    Attributes:
        parts: pieces of each part.
        part_bytes: what they take.
    """

    def __init__(self, spec: tf.TypeSpec) -> None:
        """Makes an empty one of what the rows are taken as."""
        self.parts: list[list[tf.Tensor]] = [[] for _ in range(1 + _depth(spec))]
        self.part_bytes = [0] * len(self.parts)

    @property
    def size_bytes(self) -> int:
        """What it takes."""
        return sum(self.part_bytes)

    @property
    def distinct(self) -> tf.Tensor | None:
        """The strings that its values are numbers of; None if they are the values themselves."""
        return None

    @property
    def doubled_bytes(self) -> int:
        """The most that is held twice while one of its parts is joined."""
        return max(
            part_bytes if pieces and assembling.is_held_twice(pieces[0].dtype) else 0
            for pieces, part_bytes in zip(self.parts, self.part_bytes, strict=True)
        )

    def add(self, value: tf.Tensor | tf.RaggedTensor | tf.SparseTensor) -> None:
        """Adds the rows of a chunk.

        Raises:
            NotApplicable: sparse tensors that are not lists of values.
        """
        if isinstance(value, tf.SparseTensor):
            value = _as_ragged(value)
        if isinstance(value, tf.RaggedTensor):
            value = value.with_row_splits_dtype(tf.int64)
            pieces = (*value.nested_row_lengths(), value.flat_values)
        else:
            pieces = (value,)
        for place, piece in enumerate(pieces):
            self.parts[place].append(piece)
            self.part_bytes[place] += tensor_size.of(piece)

    def end(self) -> None:
        """Settles how the values are held, now that all are there."""

    def tensors(self) -> tuple[tf.Tensor, ...]:
        """Returns the row splits, int64 and outermost first, and the values; forgets the pieces."""
        *lengths, values = map(assembling.joined, self.parts)
        self.part_bytes = [0] * len(self.parts)
        return (*(tf.concat([[0], tf.cumsum(each)], axis=0) for each in lengths), values)


class _RepeatedStrings(Column):
    """Strings, held as numbers as long as they repeat themselves."""

    def __init__(self, spec: tf.TypeSpec) -> None:
        super().__init__(spec)
        self._encoding: DictionaryEncoding | None = DictionaryEncoding()

    @property
    def size_bytes(self) -> int:
        return super().size_bytes + (self._encoding.size_bytes if self._encoding else 0)

    @property
    def doubled_bytes(self) -> int:
        return self._encoding.size_bytes if self._encoding else super().doubled_bytes

    @property
    def distinct(self) -> tf.Tensor | None:
        return self._encoding and self._encoding.values()

    def add(self, value: tf.Tensor) -> None:
        if self._encoding is None:
            super().add(value)
            return
        super().add(self._encoding.encode(value))
        self._settle(self._encoding, is_whole=False)

    def end(self) -> None:
        if self._encoding:
            self._settle(self._encoding, is_whole=True)

    def _settle(self, own: DictionaryEncoding, *, is_whole: bool) -> None:
        if own.pays(is_whole=is_whole):
            return
        (coded,) = self.parts
        values = own.values()
        self._encoding, self.parts, self.part_bytes = None, [[]], [0]
        for piece in coded:
            super().add(tf.gather(values, piece))


def of_spec(spec: tf.TypeSpec) -> Column:
    """Returns an empty column for rows of a kind."""
    is_dense = isinstance(spec, tf.TensorSpec)
    return _RepeatedStrings(spec) if is_dense and spec.dtype == tf.string else Column(spec)


def _depth(spec: tf.TypeSpec) -> int:
    """Returns how many levels of lists there are in a row."""
    if isinstance(spec, tf.RaggedTensorSpec):
        return spec.ragged_rank
    return int(isinstance(spec, tf.SparseTensorSpec))


def _as_ragged(value: tf.SparseTensor) -> tf.RaggedTensor:
    """Returns the rows of a sparse tensor as lists of values."""
    if value.shape.rank == 2:
        rows = tf.RaggedTensor.from_value_rowids(
            value.values, value.indices[:, 0], nrows=value.dense_shape[0]
        )
        lists = rows.to_sparse()
        if bool(tf.reduce_all(lists.dense_shape == value.dense_shape)) and bool(
            tf.reduce_all(lists.indices == value.indices)
        ):
            return rows
    raise candidate.NotApplicable("a sparse feature has values at places of its own")
