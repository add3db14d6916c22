"""Variables that are on another device for a while."""

import contextlib
from collections.abc import Iterator, Mapping

import tensorflow as tf


@contextlib.contextmanager
def moved(variables: Mapping[str, list[tf.Variable]]) -> Iterator[None]:
    """Moves variables (by device) while the context lasts; they come back with their new values.

    The objects stay, so that layers, optimizers and checkpoints find them. Functions traced before
    read stale values, and those traced meanwhile must not be used later.
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
