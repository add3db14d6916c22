"""ArrayDataset: a dataset over arrays in memory, known to read nothing else."""

from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops

from tfx_perf import cache_key

_COMPARED_BYTES = 2**26  # of one array: a twentieth of a second


class ArrayDataset(dataset_ops.UnaryUnchangedStructureDataset):
    """What Keras has made of arrays.

    No pass over it changes what the next one gives, and its graph holds copies of all arrays.
    """

    def __init__(self, dataset: tf.data.Dataset, *, arrays: Any, batch_size: int) -> None:
        """Wraps a dataset.

        Args:
            dataset: as Keras makes it.
            arrays: nested structure of what it was made of.
            batch_size: rows of a batch.
        """
        super().__init__(dataset, dataset._variant_tensor)
        self._arrays, self._batch_size = arrays, batch_size

    @property
    def batch_size(self) -> int:
        """Rows of a batch; the last one of an epoch may be smaller."""
        return self._batch_size

    @property
    def content(self) -> str:
        """16 hexadecimal digits of what the arrays hold; of large ones, of evenly spread rows."""
        parts = tf.nest.flatten(self._arrays, expand_composites=True)
        return cache_key.digest(b"".join(_content(part) for part in parts))


def _content(part: Any) -> bytes:
    if hasattr(part, "tocoo"):  # a sparse matrix of SciPy
        found = part.tocoo()
        return b"".join(map(_content, (found.data, found.row, found.col)))
    shape = tuple(getattr(part, "shape", ()))
    about = f"{type(part).__name__} {getattr(part, 'dtype', '')} {shape}".encode()
    if not shape:
        return about + repr(part).encode()
    bytes_per_row = len(np.asarray(part[:1]).tobytes())
    stride = -(-max(1, bytes_per_row * shape[0]) // _COMPARED_BYTES)
    rows = np.asarray(part[::stride])
    return about + (repr(rows.tolist()).encode() if rows.dtype.hasobject else rows.tobytes())
