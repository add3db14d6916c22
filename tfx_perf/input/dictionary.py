"""Strings as numbers into a list of the distinct ones.

A string tensor takes 24 bytes a value, and more for those over 22 characters, wherever it is in
memory; a number takes 4, and lies with those of other columns (see `packing`).
"""

import tensorflow as tf

_SAMPLED_VALUES = 16384
# Of more distinct values than this share of all, the list does not stay in the CPU's cache.
_MAX_DISTINCT_SHARE = 0.25


def encode(column: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor] | None:
    """Returns what a column's values are in a list of the distinct ones, and the list.

    Args:
        column: strings of any shape.

    Returns:
        The places in the list (int32, shape of the column) and the list (shape [distinct]): what
        `tf.gather` makes the column of. None if most values are distinct.
    """
    values = tf.reshape(column, [-1])
    for part in (values[:_SAMPLED_VALUES], values):  # to find out soon if it is not worth it
        distinct, places = tf.unique(part)
        if int(tf.size(distinct)) > _MAX_DISTINCT_SHARE * int(tf.size(part)):
            return None
    return tf.reshape(places, tf.shape(column)), distinct
