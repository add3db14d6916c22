"""The models that consume the input."""

from typing import Any

import tensorflow as tf
import tf_keras

from benchmarks.input import results

# The small one has the hidden layers of TFX's taxi template; the heavy one keeps CPUs busy.
HIDDEN_UNITS = {results.SMALL: (100, 70, 50, 25), results.HEAVY: (1024, 1024)}

_BUCKETS_PER_FEATURE = 1000
_EMBEDDING_WIDTH = 8


class Network(tf_keras.Model):
    """A dense network over any number and kind of features.

    Floats are used unchanged. Integers and strings are hashed into one table of embeddings, and
    features of variable length become the mean of their embeddings.
    """

    def __init__(self, feature_count: int, class_count: int, hidden_units: tuple[int, ...]) -> None:
        """Makes the layers.

        Args:
            feature_count: how many features there are, of all kinds.
            class_count: number of logits.
            hidden_units: widths of the hidden layers.
        """
        super().__init__()
        self._embedding = tf_keras.layers.Embedding(
            feature_count * _BUCKETS_PER_FEATURE, _EMBEDDING_WIDTH
        )
        self._hidden = [tf_keras.layers.Dense(units, "relu") for units in hidden_units]
        self._logits = tf_keras.layers.Dense(class_count)

    def call(self, features: dict[str, Any]) -> tf.Tensor:
        """Returns the logits, shape [batch, class_count]."""
        columns, buckets = [], []
        for index, name in enumerate(sorted(features)):
            value = features[name]
            if isinstance(value, tf.SparseTensor | tf.RaggedTensor):
                columns.append(self._mean_embedding(value, index))
            elif value.dtype.is_floating:
                columns.append(tf.reshape(value, [tf.shape(value)[0], _size_of_row(value)]))
            else:
                buckets.append(_bucket(value, index))
        if buckets:  # one lookup for all of them
            embedded = self._embedding(tf.concat(buckets, axis=1))
            width = len(buckets) * _EMBEDDING_WIDTH
            columns.append(tf.reshape(embedded, [tf.shape(embedded)[0], width]))
        hidden = tf.concat(columns, axis=1)
        for layer in self._hidden:
            hidden = layer(hidden)
        return self._logits(hidden)

    def _mean_embedding(self, value: Any, index: int) -> tf.Tensor:
        if isinstance(value, tf.RaggedTensor):
            rows, count, words = value.value_rowids(), value.nrows(), value.flat_values
        else:
            rows, count, words = value.indices[:, 0], value.dense_shape[0], value.values
        embedded = self._embedding(_bucket(words, index))
        mean = tf.math.unsorted_segment_mean(embedded, rows, count)
        return tf.ensure_shape(mean, [None, _EMBEDDING_WIDTH])


def compiled(element_spec: Any, *, class_count: int, kind: str) -> tf_keras.Model:
    """Returns a model for batches of this spec, ready to be fitted.

    Args:
        element_spec: of features and label.
        class_count: the label's values are 0 .. class_count - 1.
        kind: a key of `HIDDEN_UNITS`.
    """
    features, _ = element_spec
    model = Network(len(features), class_count, HIDDEN_UNITS[kind])
    model.compile("adam", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def _bucket(value: tf.Tensor, index: int) -> tf.Tensor:
    """Returns the rows of the `index`-th feature's part of the table."""
    if value.dtype == tf.string:
        hashed = tf.strings.to_hash_bucket_fast(value, _BUCKETS_PER_FEATURE)
    else:
        hashed = tf.math.floormod(value, _BUCKETS_PER_FEATURE)
    return hashed + index * _BUCKETS_PER_FEATURE


def _size_of_row(value: tf.Tensor) -> int:
    return value.shape[1:].num_elements()
