"""Keeps AutoGraph from converting tf_keras itself, which takes most of a first step.

TensorFlow's conversion rules except `keras` but not `tf_keras`, the same code under its
later name. So the first trace of any tf_keras model converts several hundred of the library's own
functions to graph code, although they are written to need no conversion.
"""

import contextlib
from collections.abc import Iterator

from tensorflow.python.autograph.core import config


@contextlib.contextmanager
def tf_keras_unconverted() -> Iterator[None]:
    """Adds the missing rule while the context lasts.

    The user's own layers, losses, metrics and `train_step` are converted as before. What the
    user's code has tf_keras call without conversion, as under `keras` (learning-rate
    schedules, regularizers), may not branch on tensors in Python: it then raises
    `tf.errors.OperatorNotAllowedInGraphError`, and should be tried again without the context.
    """
    rules = config.CONVERSION_RULES
    config.CONVERSION_RULES = (
        config.Convert("tf_keras.src.engine.training"),  # it calls the user's train_step
        config.DoNotConvert("tf_keras"),
        *rules,
    )
    try:
        yield
    finally:
        config.CONVERSION_RULES = rules
