"""What the allocator is left with; run in a child with TensorFlow's BFC allocator."""

import tensorflow as tf

from tfx_perf.memory import peak

_MIB = 2**20


def _tensor(size):
    return tf.zeros(size, tf.uint8) + 1


def index_after(*, freed):
    """Returns the index when of a hundred tensors of 1 MiB one half has been freed.

    Args:
        freed: `every_other` leaves holes, `last` does not.
    """
    held = [_tensor(_MIB) for _ in range(100)]
    if freed == "every_other":
        del held[::2]
    else:
        del held[50:]
    return peak.fragmentation(lambda: _tensor(_MIB // 2))
