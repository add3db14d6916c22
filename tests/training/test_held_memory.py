"""What a process held before a training is no part of what the training takes.

That of TensorFlow's own allocator, which another test may have filled, is in
test_training_memory.py.
"""

import numpy as np
import pytest
import tensorflow as tf

from tfx_perf.hardware import host
from tfx_perf.training.measuring.held_memory import HeldMemory

MEBIBYTE = 2**20
NEARLY = 24 * MEBIBYTE  # what else may come and go

pytestmark = pytest.mark.skipif(
    bool(tf.config.list_physical_devices("GPU")), reason="there it is the allocator that counts"
)


def block(mebibytes):
    return np.ones(mebibytes * MEBIBYTE, np.uint8)


def test_a_training_takes_what_comes_after_but_for_leftovers():
    HeldMemory.now()  # imports
    ballast = block(256)
    held = HeldMemory.now()
    own = block(128)
    peak_bytes = host.anonymous_memory_bytes()
    taken = held.taken_beside(peak_bytes, leftover_bytes=0)
    assert taken == pytest.approx(own.nbytes, abs=NEARLY)
    assert held.taken_beside(peak_bytes, leftover_bytes=taken // 2) == taken - taken // 2
    assert held.taken_beside(held.anonymous_bytes, leftover_bytes=ballast.nbytes) == 0


def test_what_was_freed_is_not_in_use():
    before = HeldMemory.now().used_bytes
    pieces = [bytes(5000) for _ in range(256 * MEBIBYTE // 5000)]
    between = pieces[::97]  # stay, so that the system gets the others back in pieces
    assert HeldMemory.now().used_bytes == pytest.approx(before + 256 * MEBIBYTE, abs=NEARLY)
    del pieces
    assert HeldMemory.now().used_bytes == pytest.approx(before, abs=NEARLY)
    del between
