"""Contender: a plan that passed its check, and how fast it turned out to be."""

import dataclasses
from typing import Any

import numpy as np

from tfx_perf import statistics
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.trials.choice import TrialRecord
from tfx_perf.training.trials.turns import block_seconds


@dataclasses.dataclass
class Contender:
    """One plan in the trials.

    Attributes:
        plan: the plan.
        loss: mean loss over the steps of the check; None if the logs have none.
        compile_seconds: tracing and compiling, as seen in the check.
        step_seconds: median time of a step in the check.
        blocks: seconds per step of every block; the i-th blocks of all contenders were run
            side by side.
        note: what is to be said of its check; None if nothing is.
    """

    plan: TrainingPlan
    loss: float | None
    compile_seconds: float
    step_seconds: float
    blocks: list[float] = dataclasses.field(default_factory=list)
    note: str | None = None

    @property
    def seconds(self) -> float:
        """Median time of a step in the blocks; in the check as long as there are none."""
        return float(np.median(self.blocks or [self.step_seconds]))

    @property
    def block_seconds(self) -> float:
        """What a block of turns takes, by the check."""
        calls = self.plan.steps_per_call or 1
        return block_seconds(call_seconds=calls * self.step_seconds)

    def speedup_over(self, reference: "Contender") -> statistics.Interval:
        """Returns the reference's step time over this one's."""
        return statistics.ratio_interval(reference.blocks, self.blocks)

    def record(self, reference: "Contender", *, chosen: bool) -> TrialRecord:
        """Returns the record against the reference, which is another contender."""
        speedup = self.speedup_over(reference) if self.blocks else None
        if speedup:
            reason = speed_reason(speedup, reference.plan)
        else:
            # Which are one sample: it tells which is faster, and not by how much.
            faster = "faster" if self.step_seconds < reference.step_seconds else "not faster"
            reason = f"{faster} than {reference.plan} in the few steps of its check"
        return TrialRecord(
            plan=self.plan,
            status="chosen" if chosen else "slower",
            reason="; ".join(filter(None, (reason, self.note))),
            speedup=speedup,
            **self._measured(),
        )

    def reference_record(self, reason: str) -> TrialRecord:
        """Returns the record of the reference itself."""
        return TrialRecord(
            plan=self.plan, status="reference", reason=reason, **self._measured()
        )

    def _measured(self) -> dict[str, Any]:
        return {
            "loss": self.loss,
            "compile_time_seconds": self.compile_seconds,
            "step_time": statistics.median_interval(self.blocks or [self.step_seconds]),
        }


def speed_reason(speedup: statistics.Interval, reference: TrainingPlan) -> str:
    """Returns how fast a plan is, held against another one."""
    return (
        f"{speedup.value:.2f} times the speed of {reference} "
        f"(95 % interval {speedup.low:.2f} to {speedup.high:.2f})"
    )
