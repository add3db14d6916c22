"""What else than the user's code may have made steps slower: another plan, a slower machine."""

import dataclasses
from collections.abc import Sequence

from tfx_perf.gate.run import Run

_PEAK = "peak_flops_per_second"
# The measured peaks of one machine differ by some per cent from run to run.
_SLOWER = 0.8


@dataclasses.dataclass(frozen=True)
class Circumstances:
    """How a run was trained, beside the blessed ones.

    Attributes:
        candidate: the run to judge.
        baseline: the runs that it is compared with, oldest first.
    """

    candidate: Run
    baseline: Sequence[Run]

    def __str__(self) -> str:
        """In sentences; empty if nothing was different."""
        said = []
        if self._has_another_plan:
            last = self.baseline[-1]
            said.append(
                f"It was trained with another plan: {self.candidate.plan}; "
                f"blessed run {last.run_id} with: {last.plan}."
            )
            if self.candidate.budget_lack:
                said.append(f"Its trials ended with their budget: {self.candidate.budget_lack}.")
        if self._slower_peaks:
            peak, lowest = (f"{each / 1e9:.3g}" for each in self._slower_peaks)
            said.append(
                f"The machine was slower: a matrix product ran at {peak} GFLOP/s, in the blessed "
                f"runs at no less than {lowest}."
            )
        return " ".join(said)

    @property
    def is_slower_machine(self) -> bool:
        """Whether a matrix product ran at a clearly lower rate than beside any blessed run."""
        return self._slower_peaks is not None

    @property
    def _has_another_plan(self) -> bool:
        plans = {self.candidate.plan, *(run.plan for run in self.baseline[-1:])}
        return "" not in plans and len(plans) > 1

    @property
    def _slower_peaks(self) -> tuple[float, float] | None:
        """This run's FLOP/s and the lowest of the blessed runs'; None if it is not lower.

        A GPU's are those of its datasheet, which never change.
        """
        own = self.candidate.figure(_PEAK)
        known = [peak for run in self.baseline if (peak := run.figure(_PEAK)) is not None]
        if own is None or not known or own >= _SLOWER * min(known):
            return None
        return own, min(known)
