"""The small convolutional network of Keras' tutorials."""

import tensorflow as tf
from tfx.components.trainer.fn_args_utils import FnArgs

from benchmarks.training.user_modules import common


def run_fn(fn_args: FnArgs) -> None:
    """Trains the model."""
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(128, activation="relu"),
            layers.Dense(10),
        ]
    )
    common.train(fn_args, model, common.image)
