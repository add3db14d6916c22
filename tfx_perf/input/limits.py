"""What preparing a candidate may cost."""

import dataclasses
import math
import time

from tfx_perf import formatting
from tfx_perf.hardware import host
from tfx_perf.input import candidate
from tfx_perf.input.timing import memory_meter

_TOLERANCE = 0.3  # of a forecast at the beginning; it goes by the size of the files
_SURE_SECONDS = 1.0  # before that, the speed is not known
_RESERVED_SHARE = 0.1  # of the machine's memory, for everybody else


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bounds for the one-off work of a candidate.

    Attributes:
        memory_bytes: what the candidate may hold in RAM.
        deadline_seconds: value of `time.monotonic()` after which it gives up.
        meter: measures what the candidate really takes; None: only what it says counts.
    """

    memory_bytes: float
    deadline_seconds: float = math.inf
    meter: memory_meter.MemoryMeter | None = None

    def check(self, held_bytes: float) -> None:
        """Raises NotApplicable if too much memory is taken (OverMemoryBudget), or the time is up.

        Args:
            held_bytes: what the candidate knows to hold. If the process has grown by more,
                that counts.
        """
        if self.meter:
            held_bytes = max(held_bytes, self.meter.growth_bytes())
        left_bytes = host.available_memory_bytes()
        if left_bytes < _RESERVED_SHARE * host.memory_limit_bytes():
            raise candidate.NotApplicable(
                f"only {formatting.format_bytes(left_bytes)} of memory is left on this machine"
            )
        if held_bytes > self.memory_bytes:
            raise candidate.OverMemoryBudget(
                f"needs more than {formatting.format_bytes(held_bytes)} of memory, the budget "
                f"is {formatting.format_bytes(self.memory_bytes)}",
                needed_bytes=held_bytes,
            )
        if self.remaining_seconds <= 0:
            raise candidate.NotApplicable("the time budget ended while it was being prepared")

    def check_forecast(self, held_bytes: float, *, progress: float, seconds: float) -> None:
        """Raises NotApplicable if the end, going on like this, is sure to be over the limits.

        Args:
            held_bytes: so far.
            progress: share of the work that is done, above 0; an estimate.
            seconds: that it took.
        """
        needed_bytes = held_bytes / progress
        tolerated = 1 + _TOLERANCE * (1 - progress)
        if needed_bytes > tolerated * self.memory_bytes:
            raise candidate.OverMemoryBudget(
                f"would need about {formatting.format_bytes(needed_bytes)} of memory, the budget "
                f"is {formatting.format_bytes(self.memory_bytes)}",
                needed_bytes=needed_bytes,
            )
        needed_seconds = seconds / progress - seconds
        if seconds > _SURE_SECONDS and needed_seconds > tolerated * self.remaining_seconds:
            raise candidate.NotApplicable(
                f"would take {needed_seconds:.0f} more seconds to load, the time budget leaves "
                f"{max(0.0, self.remaining_seconds):.0f}"
            )

    def raised(self, freed_bytes: float) -> "Limits":
        """Returns the limits where so much more may be held, because it was given up before."""
        if self.meter and freed_bytes:
            self.meter.restart()
        return dataclasses.replace(self, memory_bytes=self.memory_bytes + freed_bytes)

    @property
    def remaining_seconds(self) -> float:
        """Time until the deadline."""
        return self.deadline_seconds - time.monotonic()
