"""A dense network with four layers of 2,048 units."""

import tensorflow as tf
from tfx.components.trainer.fn_args_utils import FnArgs

from benchmarks.training.user_modules import common


def run_fn(fn_args: FnArgs) -> None:
    """Trains the model."""
    layers = tf.keras.layers
    hidden = [layers.Dense(2048, activation="relu") for _ in range(4)]
    model = tf.keras.Sequential([layers.Input((784,)), *hidden, layers.Dense(10)])
    common.train(fn_args, model, common.flat_image)
