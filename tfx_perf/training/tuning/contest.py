"""Compares plans: how fast each one is, and which one surely wins."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfx_perf.core import formatting, statistics
from tfx_perf.training.loop import turns
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.tuning.choice import TrialRecord

MIN_ROUNDS = 5
"""With at least this many rounds, the margin decides."""

FEW_ROUNDS = 3
"""Rounds that suffice for a plan that is surely faster by the factor `_CLEARLY`."""

_CLEARLY = 1.5


@dataclasses.dataclass
class Contender:
    """A plan that passed its check, and its speed."""

    plan: TrainingPlan
    loss: float | None = None  # mean over the check's steps; None if not in the logs
    compile_seconds: float = 0.0  # tracing and compiling, in the check; 0 without one
    step_seconds: float = 0.0  # the median in the check
    blocks: list[float] = dataclasses.field(default_factory=list)  # seconds per step
    note: str | None = None  # a remark on its check

    @property
    def seconds(self) -> float:
        """Median time of a step in the blocks, or in the check while there are no blocks."""
        return float(np.median(self.blocks or [self.step_seconds]))

    @property
    def block_seconds(self) -> float:
        """Time of a block of turns, estimated from the check."""
        call_seconds = (self.plan.steps_per_execution or 1) * self.step_seconds
        return max(turns.BLOCK_SECONDS + call_seconds, turns.BLOCK_CALLS * call_seconds)

    def speedup_over(self, reference: "Contender") -> statistics.Interval:
        """Returns the reference's step time divided by this one's."""
        return statistics.ratio_interval(reference.blocks, self.blocks)

    def record(self, reference: "Contender", winner: "Contender | None") -> TrialRecord:
        """Returns the record against the reference, which is another contender."""
        speedup = self.speedup_over(reference) if self.blocks else None
        chosen = self is winner
        if speedup:
            reason = (
                f"{speedup.value:.2f} times the speed of {reference.plan} "
                f"(95% interval {speedup.low:.2f} to {speedup.high:.2f})"
            )
            if winner and speedup.value > winner.speedup_over(reference).value:
                reason += f", but not surely faster than {winner.plan}"
        elif chosen and self.step_seconds >= reference.step_seconds:
            reason = (
                f"does the same as {reference.plan} with less work, and was not clearly slower in "
                "the few steps of its check"
            )
        else:
            # The check is one sample: it tells which plan is faster, but not by what factor.
            faster = "faster" if self.step_seconds < reference.step_seconds else "not faster"
            times = map(formatting.format_seconds, (self.step_seconds, reference.step_seconds))
            shown = " a step, not ".join(times)
            where = "in the few steps of its check, on batches in memory"
            reason = f"{faster} than {reference.plan} {where}: {shown} a step"
        return TrialRecord(
            plan=self.plan,
            status="chosen" if chosen else "slower",
            reason="; ".join(filter(None, (reason, self.note))),
            speedup=speedup,
            **self._measured(),
        )

    def reference_record(self, reason: str) -> TrialRecord:
        """Returns the record of the reference itself."""
        return TrialRecord(plan=self.plan, status="reference", reason=reason, **self._measured())

    def _measured(self) -> dict[str, Any]:
        return {
            "loss": self.loss,
            "compile_time_seconds": self.compile_seconds or None,
            "step_time": statistics.median_interval(self.blocks or [self.step_seconds]),
        }


@dataclasses.dataclass
class Contest:
    """The reference and the plans that passed their checks against it: which is surely fastest."""

    reference: Contender
    others: list[Contender] = dataclasses.field(default_factory=list)
    margin: float = dataclasses.field(kw_only=True)  # share by which the winner must be faster

    @property
    def contenders(self) -> list[Contender]:
        """All, the reference first."""
        return [self.reference, *self.others]

    @property
    def round_count(self) -> int:
        """How many rounds of turns there were."""
        return len(self.reference.blocks)

    @property
    def round_seconds(self) -> float:
        """Estimated time of a round: one block of each contender."""
        return sum(each.block_seconds for each in self.contenders)

    @property
    def first_in_checks(self) -> Contender:
        """The contender that was fastest in the few steps of its check."""
        return min(self.contenders, key=lambda each: each.step_seconds)

    def add(self, contender: Contender, plans: Sequence[TrainingPlan]) -> None:
        """Adds plans that share one function, which has passed its check."""
        self.others += [dataclasses.replace(contender, plan=plan, blocks=[]) for plan in plans]

    def add_round(self, blocks: Sequence[float]) -> None:
        """Adds a completed round: one block of each, in the order of `contenders`."""
        for contender, seconds in zip(self.contenders, blocks, strict=True):
            contender.blocks.append(seconds)

    def joined_by(self, plans: Sequence[TrainingPlan]) -> "Contest":
        """Returns the contest with more plans, assumed to be as fast as the reference."""
        joining = (dataclasses.replace(self.reference, plan=plan) for plan in plans)
        return dataclasses.replace(self, others=[*self.others, *joining])

    def limit_calls(self, longest: int) -> None:
        """Limits the steps per call, and removes plans that become equal to others."""
        by_plan: dict[TrainingPlan, Contender] = {}
        for other in self.others:
            steps = min(other.plan.steps_per_execution or 1, longest)
            plan = other.plan.model_copy(update={"steps_per_execution": steps})
            by_plan.setdefault(plan, dataclasses.replace(other, plan=plan))
        self.others = list(by_plan.values())

    def is_never_slower(self, plan: TrainingPlan) -> bool:
        """Whether a plan does the same as the reference with less work."""
        added = set(plan.speedups) - set(self.reference.plan.speedups)
        return all(each.is_never_slower for each in added)

    def fastest(self) -> Contender | None:
        """Returns the fastest of the plans that surely win, None if none does.

        Plans that may be slower by nature must also beat the best of those that may not.
        """
        if self.round_count < FEW_ROUNDS:
            return None
        more = 1.0 + self.margin
        least = more if self.round_count >= MIN_ROUNDS else max(more, _CLEARLY)
        winner: Contender | None = None
        for is_never_slower in (True, False):
            surely = [
                each
                for each in self.others
                if self.is_never_slower(each.plan) is is_never_slower
                and each.speedup_over(self.reference).low > least
                and (winner is None or each.speedup_over(winner).low > more)
            ]
            winner = min(surely, key=lambda each: each.seconds, default=winner)
        return winner

    def winner_without_turns(self) -> Contender | None:
        """Returns the plan that does the same with less work; None if turns show it is slower.

        Without turns, the check must show it by the factor `_CLEARLY`, because one sample also
        depends on the other load of the machine.
        """
        never_slower = (each for each in self.others if self.is_never_slower(each.plan))
        longest = max(
            never_slower, key=lambda each: each.plan.steps_per_execution or 1, default=None
        )
        most = 1.0 if self.round_count else _CLEARLY
        return longest if longest and longest.seconds < most * self.reference.seconds else None

    def possible_gain_seconds(self) -> float:
        """Returns the apparent winner's saving per step over the sure one; 0 within the margin."""
        to_beat = (self.fastest() or self.reference).seconds
        saved_seconds = to_beat - min(each.seconds for each in self.contenders)
        return saved_seconds if saved_seconds > self.margin * to_beat else 0.0
