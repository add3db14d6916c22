"""How Transform changes the columns, in training as in serving."""

import tensorflow as tf
import tensorflow_transform as tft

from models import features


def preprocessing_fn(inputs: dict) -> dict[str, tf.Tensor]:
    """Returns the features of the model, and the label.

    Args:
        inputs: a tensor for each column, sparse where values are missing.

    Returns:
        Tensors of shape [batch, 1]: float32 for numbers, int64 for positions and the label.
    """
    outputs = {}
    for name in features.NUMERIC:
        number = _dense(tf.cast(inputs[name], tf.float32), 0.0)
        outputs[name] = tft.scale_to_z_score(number)
    for name in features.CATEGORICAL:
        outputs[name] = tft.compute_and_apply_vocabulary(
            _dense(inputs[name], ""),
            top_k=features.VOCABULARY_SIZE,
            num_oov_buckets=1,
            vocab_filename=name,
        )
    outputs[features.LABEL] = _dense(inputs[features.LABEL], 0)
    return outputs


def _dense(column: tf.Tensor | tf.SparseTensor, missing: float | int | str) -> tf.Tensor:
    if isinstance(column, tf.SparseTensor):
        shape = [column.dense_shape[0], 1]
        column = tf.sparse.to_dense(tf.SparseTensor(column.indices, column.values, shape), missing)
    return tf.reshape(column, [-1, 1])
