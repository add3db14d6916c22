"""The rows of a split in RAM, so laid out that taking some at random is cheap."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfx_perf.input.building import assembling, column, packing, tensor_size

# One tuple of tensors a pack, and the lists of distinct strings.
Held = tuple[tuple[tuple[tf.Tensor, ...], ...], tuple[tf.Tensor, ...]]


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns: narrow ones side by side, strings that repeat themselves as numbers.

    Attributes:
        held: dataset of one element. Of each pack of columns the values of all rows, for ragged
            and sparse columns after their row splits (int64; nested ones outermost first);
            then the distinct strings of each coded column.
        packs: the numbers of the columns in each pack.
        coded: the numbers of the columns whose strings are held as numbers.
        element_spec: structure of the specs of the columns; batch sizes are of no account.
        count: number of rows.
        held_bytes: memory of the tensors.
    """

    held: tf.data.Dataset
    packs: tuple[packing.Pack, ...]
    coded: tuple[int, ...]
    element_spec: Any
    count: int
    held_bytes: int

    @classmethod
    def of_columns(cls, columns: Sequence[column.Column], *, element_spec: Any) -> "Table":
        """Makes a table.

        Args:
            columns: with all rows; they are emptied on the way, so that little is held twice.
            element_spec: what the rows are taken as.
        """
        specs = tf.nest.flatten(element_spec)
        distinct = {number: each.distinct for number, each in enumerate(columns)}
        lists = tuple(strings for strings in distinct.values() if strings is not None)
        coded = tuple(number for number, strings in distinct.items() if strings is not None)
        packs = packing.packs(_held_specs(specs, coded))
        held = tuple(_tensors([columns[number] for number in pack]) for pack in packs)
        splits_or_values = held[0][0]
        is_splits = len(held[0]) > 1
        return cls(
            held=tf.data.Dataset.from_tensors((held, lists)),
            packs=packs,
            coded=coded,
            element_spec=element_spec,
            count=int(splits_or_values.shape[0]) - is_splits,
            held_bytes=tensor_size.of((held, lists)),
        )

    def take(self, rows: tf.Tensor, held: Held) -> Any:
        """Returns rows in the structure of `element_spec`.

        Args:
            rows: their numbers, int64, shape [n].
            held: the element of `self.held`; not taken from `self`, because tensors captured by
                a dataset's function are copied when tf.data rewrites its graph.
        """
        packed, dictionaries = held
        specs = _held_specs(tf.nest.flatten(self.element_spec), self.coded)
        taken: dict[int, Any] = {}
        for pack, parts in zip(self.packs, packed, strict=True):
            own_specs = [specs[number] for number in pack]
            taken.update(zip(pack, _take(parts, rows, own_specs), strict=True))
        for number, distinct in zip(self.coded, dictionaries, strict=True):
            taken[number] = tf.gather(distinct, taken[number])
        in_order = [taken[number] for number in range(len(specs))]
        return tf.nest.pack_sequence_as(self.element_spec, in_order)


def _tensors(pack: Sequence[column.Column]) -> tuple[tf.Tensor, ...]:
    """Returns the tensors of the columns of a pack, which are emptied."""
    if len(pack) == 1:
        return pack[0].tensors()
    return (assembling.side_by_side([each.parts[0] for each in pack]),)


def _held_specs(
    specs: Sequence[tf.TypeSpec], coded: Sequence[int]
) -> list[tf.TypeSpec]:
    return [
        tf.TensorSpec(spec.shape, tf.int32) if number in coded else spec
        for number, spec in enumerate(specs)
    ]


def _take(
    parts: tuple[tf.Tensor, ...], rows: tf.Tensor, specs: Sequence[tf.TypeSpec]
) -> list[Any]:
    """Returns rows of the columns of a pack."""
    *splits, values = parts
    if not splits:
        return packing.split(tf.gather(values, rows), specs)
    (spec,) = specs
    lists = _take_lists(splits, values, rows)
    if isinstance(spec, tf.SparseTensorSpec):
        return [lists.to_sparse()]
    return [lists.with_row_splits_dtype(spec.row_splits_dtype)]


def _take_lists(
    splits: Sequence[tf.Tensor], values: tf.Tensor, rows: tf.Tensor
) -> tf.RaggedTensor:
    """Does what `tf.gather` does, which checks the splits of the whole column at each call."""
    outer, *inner = splits
    taken = tf.ragged.range(tf.gather(outer, rows), tf.gather(outer, rows + 1))
    content = (
        _take_lists(inner, values, taken.values) if inner else tf.gather(values, taken.values)
    )
    return tf.RaggedTensor.from_row_splits(content, taken.row_splits, validate=False)
