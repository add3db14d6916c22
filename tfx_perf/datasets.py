"""Small things about `tf.data` that more than one floor needs."""

from typing import Any

import tensorflow as tf


def without_autotune(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset with autotune off, for what is fixed or short-lived anyway.

    On TF 2.16 autotune's thread can hold up the end of an iterator for as long as that ran.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def row_count(batch: Any) -> tf.Tensor:
    """Returns the number of rows of a batch, by its first tensor; int64 scalar.

    Args:
        batch: nested structure of dense, ragged or sparse tensors.
    """
    value = tf.nest.flatten(batch)[0]
    if isinstance(value, tf.SparseTensor):
        return value.dense_shape[0]
    if isinstance(value, tf.RaggedTensor):
        return value.nrows(out_type=tf.int64)
    return tf.shape(value, out_type=tf.int64)[0]
