"""Meters around a training: peak memory, FLOPs."""

import contextlib
import dataclasses
from typing import Any

import tensorflow as tf

from tfx_perf import formatting
from tfx_perf.hardware import devices, host, peak
from tfx_perf.xla import hlo
from tfx_perf.xla.products import Product, forward_products

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


@dataclasses.dataclass(frozen=True)
class Flops:
    """FLOPs of a step and the peak to hold them against; None where unknown, with a note.

    Attributes:
        per_step: model FLOPs.
        peak_per_second: of all devices.
        peak_source: where the peak comes from.
        note: why something is unknown.
        products: of the forward pass, the most expensive ones first.
    """

    per_step: int | None
    peak_per_second: float | None
    peak_source: str | None
    note: str | None = None
    products: tuple[Product, ...] = ()

    def held_against(self, executed: int | None, step_seconds: float | None) -> "Flops":
        """Returns these, without the peak if a step is faster than the peak allows.

        Then one of the figures is wrong, and a utilisation above 1 would say nothing.

        Args:
            executed: FLOPs of a step, with what is computed again; None if unknown.
            step_seconds: mean time of a step; None if unknown.
        """
        peak_per_second = self.peak_per_second
        if not (executed and step_seconds and peak_per_second):
            return self
        share = executed / step_seconds / peak_per_second
        if share <= 1:
            return self
        reason = (
            f"MFU and HFU refused: {executed:,} FLOPs in {formatting.format_seconds(step_seconds)} "
            f"are {share:.0%} of the peak ({self.peak_source}). Was the machine busy when the "
            "peak was measured?"
        )
        return dataclasses.replace(self, peak_per_second=None, note=reason)


def count_flops(model: Any, batch: Any) -> Flops:
    """Counts the FLOPs of one training step and finds the hardware's peak.

    Args:
        model: a compiled Keras model.
        batch: one element of the training data, None if there is no way to get one.
    """
    if batch is None:
        return Flops(None, None, None, "FLOPs not counted: no batch can be read from x")
    try:
        module = hlo.model_step_hlo(model, batch, optimized=False)
        per_step = hlo.count_flops(module)
        products = tuple(forward_products(module))
    except hlo.NotCompilable as error:
        return Flops(None, None, None, f"FLOPs not counted: {error}")
    found = devices.accelerators()
    roof = peak.peak_flops(found[0], tf.float32)
    if roof.flops_per_second is None:
        return Flops(per_step, None, roof.source, products=products)
    peak_per_second = roof.flops_per_second * len(found)
    return Flops(per_step, peak_per_second, roof.source, products=products)
