"""What trials leave in the memory of the process that trains: no part of the training.

XLA and TensorFlow do not give back what they took to compile a program, whether or not that is
used again; with an LSTM it was 200 MiB. The training needs what the plan's own program takes.
"""

import contextlib
from collections.abc import Iterator, Sequence

from tfx_perf.training.measuring.held_memory import HeldMemory
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.trials import families


class Leftovers:
    """Follows what stays of each plan that is tried."""

    def __init__(self) -> None:
        """Begins; what is there now has been there before the trials."""
        self._began = self._now = HeldMemory.now().used_bytes
        self._taken: list[tuple[TrainingPlan, int]] = []

    @contextlib.contextmanager
    def of(self, plans: Sequence[TrainingPlan]) -> Iterator[None]:
        """Counts what stays of the context as that of plans that share a traced function."""
        before = self._now
        yield
        self._now = HeldMemory.now().used_bytes
        self._taken += [(plan, self._now - before) for plan in plans]

    def beside(self, plan: TrainingPlan) -> int:
        """Returns the bytes that stay beside those of a plan; call it when the trials are over."""
        own = (taken for tried, taken in self._taken if families.same_function(tried, plan))
        return max(0, HeldMemory.now().used_bytes - self._began - next(own, 0))
