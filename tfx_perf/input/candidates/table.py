"""The rows of a split in RAM, laid out so that random rows cost few cache misses."""

import dataclasses
import itertools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.input.candidates.candidate import NotApplicable
from tfx_perf.input.candidates.limits import Limits, tensor_bytes
from tfx_perf.tf_internals import datasets

_ALIGNMENT_BYTES = 64  # TensorFlow copies buffers aligned otherwise (EIGEN_MAX_ALIGN_BYTES)
_SHARED = {  # dtypes that NumPy also has and that DLPack can pass on
    tf.float16, tf.float32, tf.float64, tf.int8, tf.int16, tf.int32, tf.int64,
    tf.uint8, tf.uint16, tf.uint32, tf.uint64,
}  # fmt: skip
_TELLING_COUNT = 16384  # strings, enough to tell whether they repeat
# With a larger share of distinct values, their list does not stay in the CPU's cache.
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
        """The most bytes held twice while a part that is not shared, such as strings, is joined."""
        return max(
            part_bytes if pieces and pieces[0].dtype not in _SHARED else 0
            for pieces, part_bytes in zip(self.parts, self.part_bytes, strict=True)
        )

    @property
    def distinct(self) -> tf.Tensor | None:
        """The distinct strings that its values number; None if they are the values themselves."""
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
        """Decides how the values are held, after the last chunk."""

    def tensors(self) -> tuple[tf.Tensor, ...]:
        """Returns the row splits, int64 and outermost first, and the values; forgets the pieces."""
        *lengths, values = (side_by_side([pieces]) for pieces in self.parts)
        self.part_bytes = [0] * len(self.parts)
        return (*(tf.concat([[0], tf.cumsum(each)], axis=0) for each in lengths), values)


class _RepeatedStrings(Column):
    """Strings as numbers (4 bytes, not 24 or more) of distinct strings, as long as they repeat."""

    def __init__(self, spec: tf.TypeSpec) -> None:
        super().__init__(spec)
        self._numbers: dict[bytes, int] | None = {}  # None: the strings do not repeat
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
        """Returns the numbers of strings: int32, in the shape of `value`."""
        distinct, places = tf.unique(tf.reshape(value, [-1]))
        codes = []
        for string in distinct.numpy().tolist():
            if string not in numbers:
                numbers[string] = len(numbers)
                self._distinct_bytes += len(string)
            codes.append(numbers[string])
        self._count += int(tf.size(places))
        return tf.reshape(tf.gather(tf.constant(codes, tf.int32), places), tf.shape(value))


def column_for(spec: tf.TypeSpec) -> Column:
    """Returns an empty column for rows of `spec`."""
    is_dense = isinstance(spec, tf.TensorSpec)
    return _RepeatedStrings(spec) if is_dense and spec.dtype == tf.string else Column(spec)


def side_by_side(columns: Sequence[list[tf.Tensor]]) -> tf.Tensor:
    """Joins columns cut alike into one [rows, widths] tensor, emptying them to save memory."""
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
    while first:  # in order of rows: pages not yet written take no memory
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
    """Returns an array of `count` values with the alignment that TensorFlow needs."""
    size_bytes = count * np.dtype(dtype).itemsize
    raw = np.empty(size_bytes + _ALIGNMENT_BYTES, np.uint8)
    begin = -raw.ctypes.data % _ALIGNMENT_BYTES
    return raw[begin : begin + size_bytes].view(dtype)


def _depth(spec: tf.TypeSpec) -> int:
    if isinstance(spec, tf.RaggedTensorSpec):
        return spec.ragged_rank
    return int(isinstance(spec, tf.SparseTensorSpec))


def _as_ragged(value: tf.SparseTensor) -> tf.RaggedTensor:
    if value.shape.rank == 2:
        rows = tf.RaggedTensor.from_value_rowids(
            value.values, value.indices[:, 0], nrows=value.dense_shape[0]
        )
        lists = rows.to_sparse()
        if bool(tf.reduce_all(lists.dense_shape == value.dense_shape)) and bool(
            tf.reduce_all(lists.indices == value.indices)
        ):
            return rows
    raise NotApplicable("a sparse feature is not a list of values per row")


_CACHE_LINE_BYTES = 64

# One tuple of tensors per pack, and the lists of distinct strings.
Held = tuple[tuple[tuple[tf.Tensor, ...], ...], tuple[tf.Tensor, ...]]
Pack = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns: narrow ones side by side in packs, repeating strings as numbers.

    `held` is a dataset of one element: for each pack the values of all rows, after row splits
    (int64, outermost first) if ragged or sparse; then the distinct strings of each coded column.
    """

    held: tf.data.Dataset
    packs: tuple[Pack, ...]
    coded: tuple[int, ...]
    element_spec: Any
    count: int
    held_bytes: int

    @classmethod
    def from_columns(cls, columns: Sequence[Column], *, element_spec: Any) -> "Table":
        """Makes a table, emptying the columns on the way so that little is held twice."""
        specs = tf.nest.flatten(element_spec)
        distinct = {number: each.distinct for number, each in enumerate(columns)}
        lists = tuple(strings for strings in distinct.values() if strings is not None)
        coded = tuple(number for number, strings in distinct.items() if strings is not None)
        packs = packed(_held_specs(specs, coded))
        held = tuple(_tensors([columns[number] for number in pack]) for pack in packs)
        splits_or_values = held[0][0]
        is_splits = len(held[0]) > 1
        return cls(
            held=tf.data.Dataset.from_tensors((held, lists)),
            packs=packs,
            coded=coded,
            element_spec=element_spec,
            count=int(splits_or_values.shape[0]) - is_splits,
            held_bytes=tensor_bytes((held, lists)),
        )

    def take(self, rows: tf.Tensor, held: Held) -> Any:
        """Returns rows by number (int64, [n]); `held` is passed since tf.data copies captures."""
        packs, dictionaries = held
        specs = _held_specs(tf.nest.flatten(self.element_spec), self.coded)
        taken: dict[int, Any] = {}
        for pack, parts in zip(self.packs, packs, strict=True):
            own_specs = [specs[number] for number in pack]
            taken.update(zip(pack, _take(parts, rows, own_specs), strict=True))
        for number, distinct in zip(self.coded, dictionaries, strict=True):
            taken[number] = tf.gather(distinct, taken[number])
        in_order = [taken[number] for number in range(len(specs))]
        return tf.nest.pack_sequence_as(self.element_spec, in_order)


def load(chunks: tf.data.Dataset, *, limits: Limits, expected_bytes: float) -> Table:
    """Reads pairs of a structure of [n, ...] tensors and the bytes read for it (int64 scalar).

    Raises:
        NotApplicable: over the limits, no rows, or sparse tensors that are not lists of values.
    """
    spec, _ = chunks.element_spec
    columns = [column_for(part) for part in tf.nest.flatten(spec)]
    read_bytes, started = 0, time.monotonic()
    # Use host memory even if a GPU is the default device, and stay outside of any graph.
    with tf.init_scope(), tf.device("/CPU:0"):
        for structure, chunk_bytes in datasets.without_autotune(chunks):
            for each, value in zip(columns, tf.nest.flatten(structure), strict=True):
                each.add(value)
            needed_bytes = _needed_bytes(columns)
            read_bytes += int(chunk_bytes)
            limits.check_forecast(  # first, because it says how much would suffice
                needed_bytes,
                progress=min(1.0, read_bytes / expected_bytes),
                seconds=time.monotonic() - started,
            )
            limits.check(needed_bytes)
        if not read_bytes:
            raise NotApplicable("there are no examples")
        for each in columns:
            each.end()
        limits.check(_needed_bytes(columns))
        return Table.from_columns(columns, element_spec=spec)


def _needed_bytes(columns: list[Column]) -> int:
    """Returns the memory that putting together a table of the rows read so far takes."""
    held_bytes = sum(each.size_bytes for each in columns)
    return held_bytes + max((each.doubled_bytes for each in columns), default=0)


def packed(specs: Sequence[tf.TypeSpec]) -> tuple[Pack, ...]:
    """Divides columns into packs of one dtype whose rows fill at most a cache line."""
    packs: list[list[int]] = []
    filling: dict[tf.DType, tuple[list[int], int]] = {}  # by dtype: the pack, its row's bytes
    for number, spec in enumerate(specs):
        width = _row_bytes(spec)
        pack, filled_bytes = filling.get(spec.dtype, ([], _CACHE_LINE_BYTES))
        if width is None or filled_bytes + width > _CACHE_LINE_BYTES:
            pack, filled_bytes = [], 0
            packs.append(pack)
        pack.append(number)
        if width is not None:
            filling[spec.dtype] = pack, filled_bytes + width
    return tuple(map(tuple, packs))


def _row_bytes(spec: tf.TypeSpec) -> int | None:
    if not isinstance(spec, tf.TensorSpec) or not spec.shape[1:].is_fully_defined():
        return None
    if spec.dtype == tf.string:  # copying one costs more than looking it up
        return None
    row_bytes = spec.shape[1:].num_elements() * spec.dtype.size
    return row_bytes if 0 < row_bytes <= _CACHE_LINE_BYTES else None


def _tensors(pack: Sequence[Column]) -> tuple[tf.Tensor, ...]:
    if len(pack) == 1:
        return pack[0].tensors()
    return (side_by_side([each.parts[0] for each in pack]),)


def _held_specs(specs: Sequence[tf.TypeSpec], coded: Sequence[int]) -> list[tf.TypeSpec]:
    return [
        tf.TensorSpec(spec.shape, tf.int32) if number in coded else spec
        for number, spec in enumerate(specs)
    ]


def _take(parts: tuple[tf.Tensor, ...], rows: tf.Tensor, specs: Sequence[tf.TypeSpec]) -> list[Any]:
    *splits, values = parts
    if not splits:
        return unpacked(tf.gather(values, rows), specs)
    (spec,) = specs
    lists = _take_lists(splits, values, rows)
    if isinstance(spec, tf.SparseTensorSpec):
        return [lists.to_sparse()]
    return [lists.with_row_splits_dtype(spec.row_splits_dtype)]


def unpacked(rows: tf.Tensor, specs: Sequence[tf.TensorSpec]) -> list[tf.Tensor]:
    """Returns the columns that `side_by_side` joined, for any number of rows."""
    if len(specs) == 1:
        return [rows]
    columns = tf.split(rows, [spec.shape[1:].num_elements() for spec in specs], axis=1)
    return [
        column if spec.shape.rank == 2 else tf.reshape(column, [-1, *spec.shape[1:]])
        for column, spec in zip(columns, specs, strict=True)
    ]


def _take_lists(splits: Sequence[tf.Tensor], values: tf.Tensor, rows: tf.Tensor) -> tf.RaggedTensor:
    """Gathers lists without `tf.gather`'s check of the whole column's splits at each call."""
    outer, *inner = splits
    taken = tf.ragged.range(tf.gather(outer, rows), tf.gather(outer, rows + 1))
    content = _take_lists(inner, values, taken.values) if inner else tf.gather(values, taken.values)
    return tf.RaggedTensor.from_row_splits(content, taken.row_splits, validate=False)
