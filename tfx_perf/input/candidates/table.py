"""The rows of a split in RAM, laid out so that random rows cost few cache misses."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfx_perf.input.candidates import column as column_lib
from tfx_perf.input.candidates.candidate import NotApplicable
from tfx_perf.input.candidates.column import Column
from tfx_perf.input.candidates.limits import Limits, tensor_bytes
from tfx_perf.tf_internals import datasets

_CACHE_LINE_BYTES = 64

# One tuple of tensors a pack, and the lists of distinct strings.
Held = tuple[tuple[tuple[tf.Tensor, ...], ...], tuple[tf.Tensor, ...]]
Pack = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns: narrow ones side by side in packs, strings that repeat themselves as numbers.

    `held` is a dataset of one element: for each pack the values of all rows, if ragged or sparse
    after row splits (int64, outermost first); then the distinct strings of each coded column.
    """

    held: tf.data.Dataset
    packs: tuple[Pack, ...]
    coded: tuple[int, ...]
    element_spec: Any
    count: int
    held_bytes: int

    @classmethod
    def of_columns(cls, columns: Sequence[Column], *, element_spec: Any) -> "Table":
        """Makes a table; the columns are emptied on the way, so that little is held twice."""
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
        """Returns rows by number (int64, [n]); takes `held` as tf.data copies captured tensors."""
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
    columns = [column_lib.of_spec(part) for part in tf.nest.flatten(spec)]
    read_bytes, started = 0, time.monotonic()
    # Host memory even where a GPU is the default device, and outside of any graph.
    with tf.init_scope(), tf.device("/CPU:0"):
        for structure, chunk_bytes in datasets.without_autotune(chunks):
            for each, value in zip(columns, tf.nest.flatten(structure), strict=True):
                each.add(value)
            needed_bytes = _needed_bytes(columns)
            read_bytes += int(chunk_bytes)
            limits.check_forecast(  # first, because it says how much would do
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
        return Table.of_columns(columns, element_spec=spec)


def _needed_bytes(columns: list[Column]) -> int:
    """Returns what a table of what was read so far takes while it is put together."""
    held_bytes = sum(each.size_bytes for each in columns)
    return held_bytes + max((each.doubled_bytes for each in columns), default=0)


def packed(specs: Sequence[tf.TypeSpec]) -> tuple[Pack, ...]:
    """Divides columns into packs of one dtype whose rows fill at most a cache line."""
    found: list[list[int]] = []
    filling: dict[tf.DType, tuple[list[int], int]] = {}  # by dtype: the pack, its row's bytes
    for number, spec in enumerate(specs):
        width = _row_bytes(spec)
        pack, filled_bytes = filling.get(spec.dtype, ([], _CACHE_LINE_BYTES))
        if width is None or filled_bytes + width > _CACHE_LINE_BYTES:
            pack, filled_bytes = [], 0
            found.append(pack)
        pack.append(number)
        if width is not None:
            filling[spec.dtype] = pack, filled_bytes + width
    return tuple(map(tuple, found))


def _row_bytes(spec: tf.TypeSpec) -> int | None:
    """Returns the size of a row, None if it is not to be packed."""
    if not isinstance(spec, tf.TensorSpec) or not spec.shape[1:].is_fully_defined():
        return None
    if spec.dtype == tf.string:  # copying one costs more than looking it up
        return None
    row_bytes = spec.shape[1:].num_elements() * spec.dtype.size
    return row_bytes if 0 < row_bytes <= _CACHE_LINE_BYTES else None


def _tensors(pack: Sequence[Column]) -> tuple[tf.Tensor, ...]:
    if len(pack) == 1:
        return pack[0].tensors()
    return (column_lib.side_by_side([each.parts[0] for each in pack]),)


def _held_specs(specs: Sequence[tf.TypeSpec], coded: Sequence[int]) -> list[tf.TypeSpec]:
    return [
        tf.TensorSpec(spec.shape, tf.int32) if number in coded else spec
        for number, spec in enumerate(specs)
    ]


def _take(
    parts: tuple[tf.Tensor, ...], rows: tf.Tensor, specs: Sequence[tf.TypeSpec]
) -> list[Any]:
    *splits, values = parts
    if not splits:
        return unpacked(tf.gather(values, rows), specs)
    (spec,) = specs
    lists = _take_lists(splits, values, rows)
    if isinstance(spec, tf.SparseTensorSpec):
        return [lists.to_sparse()]
    return [lists.with_row_splits_dtype(spec.row_splits_dtype)]


def unpacked(rows: tf.Tensor, specs: Sequence[tf.TensorSpec]) -> list[tf.Tensor]:
    """Returns the columns that `column.side_by_side` put together, of however many rows."""
    if len(specs) == 1:
        return [rows]
    columns = tf.split(rows, [spec.shape[1:].num_elements() for spec in specs], axis=1)
    return [
        column if spec.shape.rank == 2 else tf.reshape(column, [-1, *spec.shape[1:]])
        for column, spec in zip(columns, specs, strict=True)
    ]


def _take_lists(
    splits: Sequence[tf.Tensor], values: tf.Tensor, rows: tf.Tensor
) -> tf.RaggedTensor:
    """Gathers lists without `tf.gather`'s check of the whole column's splits at each call."""
    outer, *inner = splits
    taken = tf.ragged.range(tf.gather(outer, rows), tf.gather(outer, rows + 1))
    content = (
        _take_lists(inner, values, taken.values) if inner else tf.gather(values, taken.values)
    )
    return tf.RaggedTensor.from_row_splits(content, taken.row_splits, validate=False)
