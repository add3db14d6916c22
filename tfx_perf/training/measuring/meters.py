"""Peak memory of a training."""

import contextlib

import tensorflow as tf

from tfx_perf.hardware import devices, host

_EARLIER_PEAKS: dict[str, int] = {}  # of allocators that were restarted, in bytes
_HIGHEST_PEAKS: dict[str, int] = {}  # likewise, of all trainings of this process


def _allocators() -> list[str]:
    found = devices.accelerators()
    return [f"{device.device_type}:{index}" for index, device in enumerate(found)]


def _peak(allocator: str) -> int:
    return tf.config.experimental.get_memory_info(allocator)["peak"]


def reset_peak_memory() -> None:
    """Starts a new measurement of the peak."""
    _EARLIER_PEAKS.clear()
    for allocator in _allocators():
        with contextlib.suppress(ValueError):  # an allocator without statistics
            _HIGHEST_PEAKS[allocator] = max(_peak(allocator), highest_peak_bytes(allocator))
            tf.config.experimental.reset_memory_stats(allocator)
    host.reset_resident_peak()


def restart_peak(allocator: str) -> None:
    """Starts an allocator's peak anew; `peak_memory_bytes` keeps the old one in mind.

    Args:
        allocator: of a device, e.g. `GPU:0`.
    """
    _EARLIER_PEAKS[allocator] = max(_peak(allocator), _EARLIER_PEAKS.get(allocator, 0))
    tf.config.experimental.reset_memory_stats(allocator)


def highest_peak_bytes(allocator: str) -> int:
    """Returns an allocator's highest peak before the last `reset_peak_memory`, 0 if unknown.

    Args:
        allocator: of a device, e.g. `CPU:0`.
    """
    return _HIGHEST_PEAKS.get(allocator, 0)


def peak_memory_bytes() -> int | None:
    """Returns the peak since `reset_peak_memory`, None if unknown.

    On accelerators the allocator's, the largest over the devices. On a CPU the process's
    resident set: TensorFlow's default CPU allocator does not count small tensors.
    """
    if not tf.config.list_physical_devices("GPU"):
        return peak_rss_bytes()
    peaks = list(_EARLIER_PEAKS.values())
    for allocator in _allocators():
        with contextlib.suppress(ValueError):
            peaks.append(_peak(allocator))
    return max(peaks, default=None)


def peak_rss_bytes() -> int | None:
    """Returns the peak of the resident set since `reset_peak_memory`, None if not on Linux."""
    return host.resident_peak_bytes()


def has_memory_for_as_much_again() -> bool:
    """Returns whether the host has left what this process took at its peak."""
    return host.available_memory_bytes() > (peak_rss_bytes() or 0)
