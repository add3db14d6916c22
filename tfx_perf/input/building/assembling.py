"""Tensors put together piece by piece, so that no more than a piece is held twice."""

import itertools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

_ALIGNMENT_BYTES = 64  # what is aligned otherwise TensorFlow would copy (EIGEN_MAX_ALIGN_BYTES)
_SHARED = {  # the dtypes that NumPy has too and DLPack hands over
    tf.float16, tf.float32, tf.float64, tf.int8, tf.int16, tf.int32, tf.int64,
    tf.uint8, tf.uint16, tf.uint32, tf.uint64,
}  # fmt: skip


def side_by_side(columns: Sequence[list[tf.Tensor]]) -> tf.Tensor:
    """Returns columns as one tensor, shape [rows, width of all]; one that is alone as it is.

    Args:
        columns: the pieces of each, [n, ...], of one dtype. All are cut into pieces at the
            same rows. The lists are emptied on the way.
    """
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


def joined(pieces: list[tf.Tensor]) -> tf.Tensor:
    """Returns pieces of shape [n, ...] one after another; the list is emptied on the way."""
    return side_by_side([pieces])


def is_held_twice(dtype: tf.DType) -> bool:
    """Returns whether joining takes as much memory again as the pieces, as it does for strings."""
    return dtype not in _SHARED


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
