"""What goes wrong in one of the workers of `interrupted_workers.py`."""

import resource

import numpy as np
import psutil
import tensorflow as tf

_ROW_BYTES = 2**29


def steps_of(checkpoints):
    """Returns the steps of the checkpoints that are there, in order."""
    names = (path.name for path in checkpoints.glob("fit-0/*/checkpoint-*"))
    return sorted(int(name.split("-")[1]) for name in names)


def limit_memory():
    """Leaves this process memory for three or four rows in `hungry_loss`."""
    limit_bytes = psutil.Process().memory_info().vms + 4 * _ROW_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))


def hungry_loss(y_true, y_pred):
    """The mean squared error of each row, with memory for all of them together."""

    def allocate(rows):
        np.empty(int(rows) * _ROW_BYTES, np.uint8)  # which takes addresses, but no pages
        return np.float32(0)

    return tf.reduce_mean(tf.square(y_true - y_pred), axis=-1) + tf.ensure_shape(
        tf.numpy_function(allocate, [tf.shape(y_true)[0]], tf.float32), []
    )
