"""What preparing a candidate may cost."""

import dataclasses
import math
import time

from tfx_perf import formatting
from tfx_perf.input import candidate


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bounds for the one-off work of a candidate.

    Attributes:
        memory_bytes: what the candidate may hold in RAM.
        deadline_seconds: value of `time.monotonic()` after which it gives up.
    """

    memory_bytes: float
    deadline_seconds: float = math.inf

    def check(self, held_bytes: float) -> None:
        """Raises NotApplicable if `held_bytes` is too much or the time is up."""
        if held_bytes > self.memory_bytes:
            raise candidate.NotApplicable(
                f"needs more than {formatting.format_bytes(held_bytes)} of memory, the budget "
                f"is {formatting.format_bytes(self.memory_bytes)}"
            )
        if time.monotonic() > self.deadline_seconds:
            raise candidate.NotApplicable("the time budget ended while it was being prepared")
