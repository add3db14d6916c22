"""One column of a split while it is read, chunk by chunk, and its pieces put together."""

import itertools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfx_perf.input.candidates.candidate import NotApplicable
from tfx_perf.input.candidates.limits import tensor_bytes

_ALIGNMENT_BYTES = 64  # what is aligned otherwise TensorFlow would copy (EIGEN_MAX_ALIGN_BYTES)
_SHARED = {  # the dtypes that NumPy has too and DLPack hands over
    tf.float16, tf.float32, tf.float64, tf.int8, tf.int16, tf.int32, tf.int64,
    tf.uint8, tf.uint16, tf.uint32, tf.uint64,
}  # fmt: skip
_TELLING_COUNT = 16384  # strings, of which one can tell whether they repeat themselves
# Of more distinct values than this share of all, the list does not stay in the CPU's cache.
_MAX_DISTINCT_SHARE = 0.25


class Column:
    """A column's pieces: list lengths (int64, outermost first) if ragged or sparse, then values."""

    def __init__(self, spec: tf.TypeSpec) -> None:
        self.parts: list[list[tf.Tensor]] = [[] for _ in range(1 + _depth(spec))]
        self.part_bytes = [0] * len(self.parts)

    @property
    def size_bytes(self) -> int:
        """Bytes of all pieces."""
        return sum(self.part_bytes)

    @property
    def doubled_bytes(self) -> int:
        """The most bytes that are held twice while a part is joined, as strings are."""
        return max(
            part_bytes if pieces and pieces[0].dtype not in _SHARED else 0
            for pieces, part_bytes in zip(self.parts, self.part_bytes, strict=True)
        )

    @property
    def distinct(self) -> tf.Tensor | None:
        """The strings that its values are numbers of; None if they are the values themselves."""
        return None

    def add(self, value: tf.Tensor | tf.RaggedTensor | tf.SparseTensor) -> None:
        """Adds a chunk's rows; NotApplicable for sparse tensors that are not lists of values."""
        if isinstance(value, tf.SparseTensor):
            value = _as_ragged(value)
        if isinstance(value, tf.RaggedTensor):
            value = value.with_row_splits_dtype(tf.int64)
            pieces = (*value.nested_row_lengths(), value.flat_values)
        else:
            pieces = (value,)
        for place, piece in enumerate(pieces):
            self.parts[place].append(piece)
            self.part_bytes[place] += tensor_bytes(piece)

    def end(self) -> None:
        """Settles how the values are held, now that all are there."""

    def tensors(self) -> tuple[tf.Tensor, ...]:
        """Returns the row splits, int64 and outermost first, and the values; forgets the pieces."""
        *lengths, values = (side_by_side([pieces]) for pieces in self.parts)
        self.part_bytes = [0] * len(self.parts)
        return (*(tf.concat([[0], tf.cumsum(each)], axis=0) for each in lengths), values)


class _RepeatedStrings(Column):
    """Strings as numbers (4 bytes, not 24 or more) of the distinct ones, while they repeat."""

    def __init__(self, spec: tf.TypeSpec) -> None:
        super().__init__(spec)
        self._numbers: dict[bytes, int] | None = {}  # None: they do not repeat themselves
        self._count = 0
        self._distinct_bytes = 0

    @property
    def size_bytes(self) -> int:
        return super().size_bytes + self._distinct_bytes

    @property
    def doubled_bytes(self) -> int:
        return super().doubled_bytes if self._numbers is None else self._distinct_bytes

    @property
    def distinct(self) -> tf.Tensor | None:
        return None if self._numbers is None else tf.constant(list(self._numbers), tf.string)

    def add(self, value: tf.Tensor) -> None:
        if self._numbers is None:
            super().add(value)
            return
        super().add(self._encoded(value, self._numbers))
        if self._count >= _TELLING_COUNT:
            self.end()

    def end(self) -> None:
        if self._numbers is None or len(self._numbers) <= _MAX_DISTINCT_SHARE * self._count:
            return
        distinct, (coded,) = self.distinct, self.parts
        self._numbers, self._distinct_bytes = None, 0
        self.parts, self.part_bytes = [[]], [0]
        for piece in coded:
            super().add(tf.gather(distinct, piece))

    def _encoded(self, value: tf.Tensor, numbers: dict[bytes, int]) -> tf.Tensor:
        """Returns the numbers of strings: int32, of their shape."""
        distinct, places = tf.unique(tf.reshape(value, [-1]))
        found = []
        for string in distinct.numpy().tolist():
            if string not in numbers:
                numbers[string] = len(numbers)
                self._distinct_bytes += len(string)
            found.append(numbers[string])
        self._count += int(tf.size(places))
        return tf.reshape(tf.gather(tf.constant(found, tf.int32), places), tf.shape(value))


def of_spec(spec: tf.TypeSpec) -> Column:
    """Returns an empty column for rows of a kind."""
    is_dense = isinstance(spec, tf.TensorSpec)
    return _RepeatedStrings(spec) if is_dense and spec.dtype == tf.string else Column(spec)


def side_by_side(columns: Sequence[list[tf.Tensor]]) -> tf.Tensor:
    """Joins columns cut alike to one [rows, widths] tensor; empties them to hold little twice."""
    first = columns[0]
    if len(columns) == 1 and len(first) == 1:
        return first.pop()
    if first[0].dtype not in _SHARED or not sum(map(tf.size, first)):
        joined = [tf.concat(_all_of(pieces), axis=0) for pieces in columns]
        return joined[0] if len(joined) == 1 else tf.concat(list(map(_flat, joined)), axis=1)
    count = sum(int(piece.shape[0]) for piece in first)
    widths = [_width(pieces[0]) for pieces in columns]
    shape = first[0].shape[1:] if len(columns) == 1 else [sum(widths)]
    whole = _aligned(count * sum(widths), dtype=first[0].dtype.as_numpy_dtype)
    rows = whole.reshape(count, sum(widths))
    end = 0
    while first:  # rows after rows: of what is not yet written the system gives no memory
        begin, end = end, end + int(first[0].shape[0])
        for place, pieces in zip(itertools.accumulate(widths, initial=0), columns, strict=False):
            piece = pieces.pop(0)
            rows[begin:end, place : place + _width(piece)] = _flat(piece).numpy()
    return tf.experimental.dlpack.from_dlpack(whole.reshape(count, *shape).__dlpack__())


def _all_of(pieces: list[tf.Tensor]) -> list[tf.Tensor]:
    taken = list(pieces)
    pieces.clear()
    return taken


def _flat(piece: tf.Tensor) -> tf.Tensor:
    return tf.reshape(piece, [tf.shape(piece)[0], _width(piece)])


def _width(piece: tf.Tensor) -> int:
    return piece.shape[1:].num_elements()


def _aligned(count: int, *, dtype: type) -> np.ndarray:
    """Returns an array of `count` values that begins where TensorFlow wants it to."""
    size_bytes = count * np.dtype(dtype).itemsize
    raw = np.empty(size_bytes + _ALIGNMENT_BYTES, np.uint8)
    begin = -raw.ctypes.data % _ALIGNMENT_BYTES
    return raw[begin : begin + size_bytes].view(dtype)


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
    raise NotApplicable("a sparse feature has values at places of its own")
