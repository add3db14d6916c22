"""What TensorFlow's random numbers follow from in this process."""

import random

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.ops import stateful_random_ops


def global_seed() -> int | None:
    """Returns what `tf.random.set_seed` was given; None before."""
    return context.global_seed()


def operation_seeds() -> random.Random | None:
    """Returns what seeds operations outside of graphs; None before `tf.random.set_seed`."""
    return getattr(context.context(), "_rng", None)


def global_generator_state() -> tf.Variable | None:
    """Returns the state of TensorFlow's global generator; None if nobody has asked for one."""
    generator = stateful_random_ops.global_generator
    return None if generator is None else generator.state
