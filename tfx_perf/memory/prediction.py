"""How the step's peak grows with the batch, and the largest batch that should fit."""

from collections.abc import Mapping

import numpy as np

from tfx_perf.memory import peak
from tfx_perf.memory.record import Prediction

_RESOLUTION = 0.05  # of a peak: what the allocator's rounding of sizes can feign


def growth_stands_out(peaks: Mapping[int, peak.StepPeak]) -> bool:
    """Tells whether the peak grows clearly more than it varies for other reasons.

    Args:
        peaks: batch size to its measured peak.
    """
    smallest, largest = peaks[min(peaks)], peaks[max(peaks)]
    scatter = max(item.scatter_bytes for item in peaks.values())
    growth = largest.bytes - smallest.bytes
    return growth > max(2 * scatter, _RESOLUTION * smallest.bytes)


def predict(peaks: Mapping[int, peak.StepPeak]) -> Prediction:
    """Fits the line by least squares.

    Args:
        peaks: batch size to its measured peak; at least two, growing.
    """
    sizes = np.array(sorted(peaks), dtype=float)
    measured = np.array([peaks[int(size)].bytes for size in sizes], dtype=float)
    slope, intercept = np.polyfit(sizes, measured, deg=1)
    deviation = np.abs(intercept + slope * sizes - measured) / measured
    return Prediction(
        fixed_bytes=float(intercept),
        bytes_per_example=float(slope),
        deviation_ratio=float(deviation.max()),
    )
