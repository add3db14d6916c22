"""How large records are, by a sample that is spread over the files."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

_FILES = 8
_RECORDS = 2048  # of a file
_BYTES = 2**20  # likewise
_AT_ONCE = 64
_PARSED_BYTES = 2**16


class RecordSizes(NamedTuple):
    """How large serialised records are.

    Attributes:
        mean_bytes: of one.
        high_bytes: mean of the largest that follow one another, as in a batch.
    """

    mean_bytes: float
    high_bytes: float


def sampled(files: Sequence[str], *, compression: str) -> RecordSizes | None:
    """Returns the sizes in a sample; None if there are no records.

    Args:
        files: of which those in equal distances are looked at, each from its beginning.
        compression: `GZIP` or the empty string.

    Raises:
        tf.errors.OpError: one of them cannot be read.
    """
    chosen = _spread(files)
    for names in (chosen, [name for name in files if name not in chosen]):
        lengths = [_lengths(name, compression=compression) for name in names]
        found = np.concatenate([np.empty(0, np.int64), *lengths])
        if found.size:
            return RecordSizes(
                mean_bytes=float(found.mean()), high_bytes=max(map(_largest_mean, lengths))
            )
    return None


def beginnings(
    files: Sequence[str], *, compression: str, record_bytes: float
) -> Iterator[tf.Tensor]:
    """Yields vectors of serialised records from the beginnings of some files.

    Args:
        files: of which those in equal distances are looked at.
        compression: `GZIP` or the empty string.
        record_bytes: mean size of a record, so that a vector takes 64 KiB, or one record.
    """
    count = max(1, min(_AT_ONCE, int(_PARSED_BYTES / max(record_bytes, 1))))
    found = False
    for names in (_spread(files), files):
        if not found:
            for name in names:
                for vector in tf.data.TFRecordDataset(name, compression).batch(count).take(1):
                    found = True
                    yield vector


def _largest_mean(lengths: np.ndarray) -> float:
    """Returns the largest mean of some that follow one another; 0 of none."""
    count = min(_AT_ONCE, lengths.size)
    if not count:
        return 0.0
    sums = np.concatenate([[0], np.cumsum(lengths)])
    return float(np.max(sums[count:] - sums[:-count]) / count)


def _spread(files: Sequence[str]) -> list[str]:
    """Returns a few files in equal distances."""
    places = np.unique(np.linspace(0, len(files) - 1, num=_FILES, dtype=int)) if files else ()
    return [files[place] for place in places]


def _lengths(file: str, *, compression: str) -> np.ndarray:
    """Returns the sizes of the first records of a file."""
    records = tf.data.TFRecordDataset(file, compression, buffer_size=_BYTES)
    found = [np.empty(0, np.int64)]
    # A length at a time: of large records a vector of a few would take more than is allowed.
    for vector in records.take(_RECORDS).map(tf.strings.length).batch(_AT_ONCE):
        found.append(vector.numpy().astype(np.int64))
        if sum(map(np.sum, found)) > _BYTES:
            break
    return np.concatenate(found)
