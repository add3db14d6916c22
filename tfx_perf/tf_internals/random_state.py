"""The state behind TensorFlow's random numbers in this process."""

import contextlib
import random
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.ops import stateful_random_ops


def global_seed() -> int | None:
    """Returns the seed given to `tf.random.set_seed`; None before."""
    return context.global_seed()


def operation_seeds() -> random.Random | None:
    """Returns the generator of seeds for eager operations; None before `tf.random.set_seed`."""
    return getattr(context.context(), "_rng", None)


def restore(seeds: random.Random, state: tuple) -> None:
    """Has operations outside of graphs continue from `state`; retracing then takes seconds."""
    seeds.setstate(state)
    context.context().clear_kernel_cache()


@contextlib.contextmanager
def other_operation_seeds() -> Iterator[None]:
    """Has operations outside of graphs use other seeds and kernels, without later effects."""
    of_process, seeds, seed = context.context(), operation_seeds(), global_seed()
    if seeds is None:
        yield
        return
    other = random.Random()
    other.setstate(seeds.getstate())
    of_process._rng = random.Random(other.getrandbits(64))
    try:
        yield
    finally:  # whatever seed was set inside
        of_process._rng, of_process._seed = seeds, seed


def global_generator_state() -> tf.Variable | None:
    """Returns the state of TensorFlow's global generator; None if no code has asked for it."""
    generator = stateful_random_ops.global_generator
    return None if generator is None else generator.state
