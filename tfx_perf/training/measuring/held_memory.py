"""HeldMemory: what a process holds before a training, and what the training takes beside it.

What ran before in a process must not make a difference: what it has left is no part of the
training, and what it has freed is no gift to it. Freed memory is returned to the system before the
training, but for that of TensorFlow's allocator for large tensors (with oneDNN on a CPU), which
keeps all that it has ever had, for its next tensors.
"""

import contextlib
import dataclasses
import gc

import tensorflow as tf

from tfx_perf.hardware import host
from tfx_perf.tf_internals import devices
from tfx_perf.training.measuring import meters

_ALLOCATOR = "CPU:0"


@dataclasses.dataclass(frozen=True)
class HeldMemory:
    """The host memory of this process before a training.

    Attributes:
        anonymous_bytes: what belongs to no file, after freed memory has been returned.
        tensor_bytes: the large tensors among it.
        kept_bytes: what the allocator keeps for such tensors, those included.
    """

    anonymous_bytes: int
    tensor_bytes: int
    kept_bytes: int

    @classmethod
    def now(cls) -> "HeldMemory":
        """Returns what this process holds; opens no device."""
        gc.collect()
        host.return_freed_memory()
        now_bytes = kept_bytes = 0
        if devices.are_open():  # else there is no tensor yet
            now_bytes, kept_bytes = _now_and_peak()
            kept_bytes = max(kept_bytes, meters.highest_peak_bytes(_ALLOCATOR))
        return cls(host.anonymous_memory_bytes(), now_bytes, kept_bytes)

    @property
    def used_bytes(self) -> int:
        """The memory in use: what the allocator keeps for its next tensors is not."""
        return self.anonymous_bytes - (self.kept_bytes - self.tensor_bytes)

    def taken_beside(self, peak_bytes: int, *, leftover_bytes: int) -> int | None:
        """Returns the peak of what a training takes beside this; call it at its end.

        In bytes, None if unknown. On a GPU, what its allocator had at the peak: memory that others
        have freed is free there.

        Args:
            peak_bytes: of the memory that belongs to no file.
            leftover_bytes: of that, what has come since and is no part of the training.
        """
        if tf.config.list_physical_devices("GPU"):
            return meters.peak_memory_bytes()
        # Of what the allocator kept, the training's tensors took so much again.
        again_bytes = min(self.kept_bytes, _now_and_peak()[1]) - self.tensor_bytes
        return max(0, peak_bytes - self.anonymous_bytes - leftover_bytes + again_bytes)


def _now_and_peak() -> tuple[int, int]:
    with contextlib.suppress(ValueError):  # without oneDNN it counts nothing, and keeps nothing
        found = tf.config.experimental.get_memory_info(_ALLOCATOR)
        return found["current"], found["peak"]
    return 0, 0
