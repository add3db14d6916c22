"""A transformer of four layers over words."""

import tensorflow as tf
from tfx.components.trainer.fn_args_utils import FnArgs

from benchmarks.training.user_modules import common

_LAYERS, _WIDTH, _HEADS = 4, 128, 4


def run_fn(fn_args: FnArgs) -> None:
    """Trains the model."""
    layers = tf.keras.layers
    inputs = tf.keras.Input((64,), dtype="int64")
    hidden = layers.Embedding(common.VOCABULARY, _WIDTH)(inputs)
    for _ in range(_LAYERS):
        attended = layers.MultiHeadAttention(_HEADS, _WIDTH // _HEADS, dropout=0.1)(hidden, hidden)
        hidden = layers.LayerNormalization()(layers.Add()([hidden, attended]))
        forward = layers.Dense(_WIDTH)(layers.Dense(4 * _WIDTH, activation="gelu")(hidden))
        forward = layers.Dropout(0.1)(forward)
        hidden = layers.LayerNormalization()(layers.Add()([hidden, forward]))
    outputs = layers.Dense(2)(layers.GlobalAveragePooling1D()(hidden))
    common.train(fn_args, tf.keras.Model(inputs, outputs), common.words)
