"""Dictionary encoding: strings as numbers into a list of the distinct ones.

A string tensor takes 24 bytes a value, and more for those over 22 characters, wherever it is in
memory; a number takes 4, and lies with those of other columns (see `packing`).
"""

import tensorflow as tf

_TELLING_COUNT = 16384  # values, of which one can tell whether they repeat themselves
# Of more distinct values than this share of all, the list does not stay in the CPU's cache.
_MAX_DISTINCT_SHARE = 0.25


class DictionaryEncoding:
    """The distinct strings of a column, whose pieces come one after another."""

    def __init__(self) -> None:
        """Makes an empty one."""
        self._numbers: dict[bytes, int] = {}
        self._count = 0
        self.size_bytes = 0

    def encode(self, piece: tf.Tensor) -> tf.Tensor:
        """Returns the places of a piece's strings in `values`: int32, of its shape."""
        distinct, places = tf.unique(tf.reshape(piece, [-1]))
        numbers = []
        for value in distinct.numpy().tolist():
            if value not in self._numbers:
                self._numbers[value] = len(self._numbers)
                self.size_bytes += len(value)
            numbers.append(self._numbers[value])
        self._count += int(tf.size(places))
        return tf.reshape(tf.gather(tf.constant(numbers, tf.int32), places), tf.shape(piece))

    def pays(self, *, is_whole: bool) -> bool:
        """Returns whether the values repeat themselves often enough.

        Args:
            is_whole: whether all pieces have come; before, a few say nothing.
        """
        if not is_whole and self._count < _TELLING_COUNT:
            return True
        return len(self._numbers) <= _MAX_DISTINCT_SHARE * self._count

    def values(self) -> tf.Tensor:
        """Returns the distinct strings, shape [distinct], which the numbers point into."""
        return tf.constant(list(self._numbers), tf.string)
