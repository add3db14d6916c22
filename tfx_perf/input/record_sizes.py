"""How large records are, by a sample that is spread over the files."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

_FILES = 8
_RECORDS = 2048  # of a file
_BYTES = 2**20  # likewise
_AT_ONCE = 64


def mean_bytes(files: Sequence[str], *, compression: str) -> float | None:
    """Returns the mean size of a serialised record; None if there are none.

    Args:
        files: of which those in equal distances are looked at, each from its beginning.
        compression: `GZIP` or the empty string.

    Raises:
        tf.errors.OpError: one of them cannot be read.
    """
    spread = np.unique(np.linspace(0, len(files) - 1, num=_FILES, dtype=int)) if files else ()
    chosen = [files[place] for place in spread]
    for names in (chosen, [name for name in files if name not in chosen]):
        lengths = [_lengths(name, compression=compression) for name in names]
        found = np.concatenate([np.empty(0, np.int64), *lengths])
        if found.size:
            return float(found.mean())
    return None


def _lengths(file: str, *, compression: str) -> np.ndarray:
    """Returns the sizes of the first records of a file."""
    records = tf.data.TFRecordDataset(file, compression, buffer_size=_BYTES)
    found = [np.empty(0, np.int64)]
    for vector in records.take(_RECORDS).batch(_AT_ONCE):
        found.append(tf.strings.length(vector).numpy().astype(np.int64))
        if sum(map(np.sum, found)) > _BYTES:
            break
    return np.concatenate(found)
