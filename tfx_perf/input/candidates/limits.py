"""How much time and memory preparing a candidate may take, and how much memory it takes."""

import dataclasses
import gc
import math
import time
from typing import Any

import tensorflow as tf

from tfx_perf.core import formatting, periodic
from tfx_perf.hardware import host
from tfx_perf.input.candidates.candidate import NotApplicable, OverMemoryBudget

STRING_HEADER_BYTES = 24  # sizeof(tensorflow::tstring)

_TOLERANCE = 0.3  # tolerated error of a forecast at the beginning, by file sizes
_SURE_SECONDS = 1.0  # before that, the speed is not known
_RESERVED_SHARE = 0.1  # share of the machine's memory for other processes
_SAMPLING_SECONDS = 0.02


class MemoryMeter:
    """Measures how much this process grows inside a `with` block, now and at its peak.

    Freed memory that the allocator keeps would hide growth, so it is returned to the system first.
    Pages of files do not count: the system reclaims them. A thread samples the peak every 20 ms,
    because resetting the kernel's own peak would disturb other readers of it.
    """

    def __enter__(self) -> "MemoryMeter":
        gc.collect()
        host.return_freed_memory()
        self._before_bytes = self._peak_bytes = host.anonymous_memory_bytes()
        self._sampling = periodic.calling(self.growth_bytes, seconds=_SAMPLING_SECONDS)
        self._sampling.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._sampling.__exit__(*raised)

    def growth_bytes(self) -> int:
        """Returns how much more memory the process has now than at the start."""
        now_bytes = host.anonymous_memory_bytes()
        self._peak_bytes = max(self._peak_bytes, now_bytes)
        return now_bytes - self._before_bytes

    def settled_growth_bytes(self) -> int:
        """Returns the growth without memory that was freed meanwhile."""
        host.return_freed_memory()
        return self.growth_bytes()

    @property
    def peak_growth_bytes(self) -> int:
        """The largest growth seen."""
        return self._peak_bytes - self._before_bytes


@dataclasses.dataclass(frozen=True)
class Limits:
    """RAM and `time.monotonic()` deadline; without `meter` only a candidate's own figures count."""

    memory_bytes: float
    deadline_seconds: float = math.inf
    meter: MemoryMeter | None = None

    def check(self, held_bytes: float) -> None:
        """Raises OverMemoryBudget, or NotApplicable if time or the machine's memory runs out."""
        if self.meter:
            held_bytes = max(held_bytes, self.meter.growth_bytes())
        left_bytes = host.available_memory_bytes()
        if left_bytes < _RESERVED_SHARE * host.memory_limit_bytes():
            raise NotApplicable(
                f"only {formatting.format_bytes(left_bytes)} of memory is left on this machine"
            )
        if held_bytes > self.memory_bytes:
            raise self._over("needs more than", held_bytes)
        if self.remaining_seconds <= 0:
            raise NotApplicable("the time budget ended while it was being prepared")

    def check_forecast(self, held_bytes: float, *, progress: float, seconds: float) -> None:
        """Raises NotApplicable if a forecast at `progress` (a share) is clearly over the limits."""
        tolerated = 1 + _TOLERANCE * (1 - progress)
        if held_bytes / progress > tolerated * self.memory_bytes:
            raise self._over("would need about", held_bytes / progress)
        needed_seconds = seconds / progress - seconds
        if seconds > _SURE_SECONDS and needed_seconds > tolerated * self.remaining_seconds:
            raise NotApplicable(
                f"would take {needed_seconds:.0f} more seconds to load, the time budget leaves "
                f"{max(0.0, self.remaining_seconds):.0f}"
            )

    @property
    def remaining_seconds(self) -> float:
        """Time until the deadline."""
        return self.deadline_seconds - time.monotonic()

    def _over(self, needs: str, needed_bytes: float) -> OverMemoryBudget:
        return OverMemoryBudget(
            f"{needs} {formatting.format_bytes(needed_bytes)} of memory, the budget "
            f"is {formatting.format_bytes(self.memory_bytes)}",
            needed_bytes=needed_bytes,
        )


def tensor_bytes(structure: Any) -> int:
    """Returns the bytes of dense, ragged and sparse tensors, strings by their length."""
    return sum(map(_size_of_tensor, tf.nest.flatten(structure, expand_composites=True)))


def _size_of_tensor(value: tf.Tensor) -> int:
    if value.dtype == tf.string:
        content = int(tf.reduce_sum(tf.cast(tf.strings.length(value), tf.int64)))
        return content + STRING_HEADER_BYTES * value.shape.num_elements()
    return value.shape.num_elements() * value.dtype.size
