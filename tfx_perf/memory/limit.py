"""How much memory a training step may take."""

import dataclasses

from tfx_perf.hardware import host
from tfx_perf.memory import peak
from tfx_perf.tf_internals import devices


@dataclasses.dataclass(frozen=True)
class MemoryLimit:
    """A bound on a step's peak.

    Attributes:
        bytes: the bound.
        source: what it is a share of.
    """

    bytes: int
    source: str


def memory_limit(*, max_utilization: float) -> MemoryLimit:
    """Returns the share of the memory that a step on the profiled device may take.

    On a GPU, of what TensorFlow's allocator may use; on the CPU, of the RAM that this process
    can still get (free memory, or what its container leaves).

    Args:
        max_utilization: the share, 0-1.
    """
    device = peak.device_name()
    if device.startswith("CPU"):
        available, source = host.available_memory_bytes(), "available RAM"
    else:
        available, source = devices.allocator_limit_bytes(device), f"allocator limit of {device}"
    return MemoryLimit(int(max_utilization * available), f"{max_utilization:.0%} of {source}")


def device_memory_bytes() -> int:
    """Returns all that a training may take: of a GPU's allocator, or the RAM on the CPU."""
    device = peak.device_name()
    if device.startswith("CPU"):
        return host.memory_limit_bytes()
    return devices.allocator_limit_bytes(device)
