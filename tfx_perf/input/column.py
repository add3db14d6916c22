"""One column of a split while it is read, chunk by chunk."""

import tensorflow as tf

from tfx_perf.input import assembling, candidate, dictionary, source


class Column:
    """The pieces of a column, in parts of which each will be one tensor.

    Of a dense column they are its values; of a ragged or sparse one the lengths of its lists
    (int64, nested ones outermost first), then the values.

    Attributes:
        parts: pieces of each part.
        size_bytes: what they take.
    """

    def __init__(self, spec: tf.TypeSpec) -> None:
        """Makes an empty one of what the rows are taken as."""
        self.parts: list[list[tf.Tensor]] = [[] for _ in range(1 + _depth(spec))]
        self.size_bytes = 0

    @property
    def distinct(self) -> tf.Tensor | None:
        """The strings that its values are numbers of; None if they are the values themselves."""
        return None

    @property
    def doubled_bytes(self) -> int:
        """The most that is held twice while one of its parts is joined."""
        return max(
            sum(map(size_bytes, pieces)) if assembling.is_held_twice(pieces[0].dtype) else 0
            for pieces in self.parts
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
        for part, piece in zip(self.parts, pieces, strict=True):
            part.append(piece)
            self.size_bytes += size_bytes(piece)

    def end(self) -> None:
        """Settles how the values are held, now that all are there."""

    def tensors(self) -> tuple[tf.Tensor, ...]:
        """Returns the row splits, int64 and outermost first, and the values; forgets the pieces."""
        *lengths, values = map(assembling.joined, self.parts)
        self.size_bytes = 0
        return (*(tf.concat([[0], tf.cumsum(each)], axis=0) for each in lengths), values)


class _RepeatedStrings(Column):
    """Strings, held as numbers as long as they repeat themselves."""

    def __init__(self, spec: tf.TypeSpec) -> None:
        super().__init__(spec)
        self._dictionary: dictionary.Dictionary | None = dictionary.Dictionary()

    @property
    def distinct(self) -> tf.Tensor | None:
        return self._dictionary and self._dictionary.values()

    def add(self, value: tf.Tensor) -> None:
        if self._dictionary is None:
            super().add(value)
            return
        known_bytes = self._dictionary.size_bytes
        super().add(self._dictionary.encode(value))
        self.size_bytes += self._dictionary.size_bytes - known_bytes
        self._settle(is_whole=False)

    def end(self) -> None:
        if self._dictionary:
            self._settle(is_whole=True)

    def _settle(self, *, is_whole: bool) -> None:
        if self._dictionary.pays(is_whole=is_whole):
            return
        (coded,) = self.parts
        strings = [self._dictionary.decode(piece) for piece in coded]
        self._dictionary, self.parts, self.size_bytes = None, [[]], 0
        for piece in strings:
            super().add(piece)


def of_spec(spec: tf.TypeSpec) -> Column:
    """Returns an empty column for rows of a kind."""
    is_dense = isinstance(spec, tf.TensorSpec)
    return _RepeatedStrings(spec) if is_dense and spec.dtype == tf.string else Column(spec)


def size_bytes(value: tf.Tensor) -> int:
    """Returns the memory of a tensor, strings by their length."""
    if value.dtype == tf.string:
        content = int(tf.reduce_sum(tf.cast(tf.strings.length(value), tf.int64)))
        return content + source.STRING_HEADER_BYTES * int(tf.size(value))
    return int(tf.size(value)) * value.dtype.size


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
