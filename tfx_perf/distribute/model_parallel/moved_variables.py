"""Variables that are on another device for a while."""

import contextlib
from collections.abc import Iterator, Mapping

import tensorflow as tf


@contextlib.contextmanager
def moved(variables: Mapping[str, list[tf.Variable]]) -> Iterator[None]:
    """Moves variables while the context lasts; afterwards they are back, with their new values.

    The objects stay the same, so that layers, optimizers and checkpoints find them. What was
    traced before reads what is left behind, and what is traced meanwhile must not be used later.

    Args:
        variables: by device; each is of no strategy with several replicas.
    """
    left = []  # and the copies, which nothing else keeps alive
    try:
        for device, found in variables.items():
            for variable in found:
                with tf.init_scope(), tf.device(device):
                    copy = tf.Variable(variable.read_value())
                left.append((variable, variable._handle, copy))
                variable._handle = copy._handle
        yield
    finally:
        for variable, handle, copy in left:
            variable._handle = handle
            with tf.device(handle.device):
                variable.assign(copy.read_value())
