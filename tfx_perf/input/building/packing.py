"""Narrow columns side by side, so that a row of them lies together in memory.

Taking rows at random from columns that are apart costs a cache miss for each column; taking them
from columns side by side costs one for all of them.
"""

from collections.abc import Sequence

import tensorflow as tf

_CACHE_LINE_BYTES = 64

Pack = tuple[int, ...]


def packs(specs: Sequence[tf.TypeSpec]) -> tuple[Pack, ...]:
    """Divides columns into packs of one dtype whose rows fill a cache line at the most.

    Args:
        specs: of the columns, with the rows as their first dimension.

    Returns:
        The numbers of the columns in each pack. What is sparse, ragged, wide, of unknown
        width or a string stays alone.
    """
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


def split(rows: tf.Tensor, specs: Sequence[tf.TensorSpec]) -> list[tf.Tensor]:
    """Returns the columns that were put side by side, of however many rows.

    Args:
        rows: as `assembling.side_by_side` returned them, shape [n, ...].
        specs: of the columns.
    """
    if len(specs) == 1:
        return [rows]
    columns = tf.split(rows, [spec.shape[1:].num_elements() for spec in specs], axis=1)
    return [
        column if spec.shape.rank == 2 else tf.reshape(column, [-1, *spec.shape[1:]])
        for column, spec in zip(columns, specs, strict=True)
    ]


def _row_bytes(spec: tf.TypeSpec) -> int | None:
    """Returns the size of a row, None if it is not to be packed."""
    if not isinstance(spec, tf.TensorSpec) or not spec.shape[1:].is_fully_defined():
        return None
    if spec.dtype == tf.string:  # copying one costs more than looking it up
        return None
    row_bytes = spec.shape[1:].num_elements() * spec.dtype.size
    return row_bytes if 0 < row_bytes <= _CACHE_LINE_BYTES else None
