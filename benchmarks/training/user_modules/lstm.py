"""An LSTM over words."""

import tensorflow as tf
from tfx.components.trainer.fn_args_utils import FnArgs

from benchmarks.training.user_modules import common


def run_fn(fn_args: FnArgs) -> None:
    """Trains the model."""
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input((64,), dtype="int64"),
            layers.Embedding(common.VOCABULARY, 64),
            layers.LSTM(64),
            layers.Dense(2),
        ]
    )
    common.train(fn_args, model, common.words)
