"""Contest: which of the plans that train as plain `fit` does is surely the fastest."""

import dataclasses
from collections.abc import Sequence
from typing import Self

from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.trials.contender import Contender

MIN_ROUNDS = 5
"""So many rounds decide by the margin."""

FEW_ROUNDS = 3
"""So few do for a plan that is surely so much faster as `_CLEARLY` says."""

_CLEARLY = 1.5


@dataclasses.dataclass
class Contest:
    """The reference and the plans that passed their checks against it.

    Attributes:
        reference: what the others must beat.
        others: in the order of their checks.
        margin: the share by which a plan must surely be faster.
    """

    reference: Contender
    others: list[Contender] = dataclasses.field(default_factory=list)
    margin: float = dataclasses.field(kw_only=True)

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
        """What a round takes, a block of each."""
        return sum(each.block_seconds for each in self.contenders)

    @property
    def first_in_checks(self) -> Contender:
        """The fastest in the few steps of its check."""
        return min(self.contenders, key=lambda each: each.step_seconds)

    @property
    def first_of_own_precision(self) -> Contender:
        """The fastest likewise, of those in the model's own precision."""
        own = (each for each in self.contenders if each.plan.precision is None)
        return min(own, key=lambda each: each.step_seconds)

    def add(self, found: Contender, plans: Sequence[TrainingPlan]) -> None:
        """Adds plans of one function, which has passed its check."""
        self.others += [dataclasses.replace(found, plan=plan, blocks=[]) for plan in plans]

    def add_round(self, blocks: Sequence[float]) -> None:
        """Adds a round that came to its end: a block of each, in the order of `contenders`."""
        for contender, seconds in zip(self.contenders, blocks, strict=True):
            contender.blocks.append(seconds)

    def joined_by(self, plans: Sequence[TrainingPlan]) -> Self:
        """Returns what it would be with further plans, as fast as the reference."""
        joining = (dataclasses.replace(self.reference, plan=plan) for plan in plans)
        return dataclasses.replace(self, others=[*self.others, *joining])

    def limit_calls(self, longest: int) -> None:
        """Has no call be longer than so many steps, and leaves out what becomes equal."""
        by_plan: dict[TrainingPlan, Contender] = {}
        for other in self.others:
            steps = min(other.plan.steps_per_call or 1, longest)
            plan = other.plan.model_copy(update={"steps_per_call": steps})
            by_plan.setdefault(plan, dataclasses.replace(other, plan=plan))
        self.others = list(by_plan.values())

    def is_never_slower(self, plan: TrainingPlan) -> bool:
        """Whether a plan does the same as the reference with less work."""
        added = set(plan.optimizations) - set(self.reference.plan.optimizations)
        return all(each.is_never_slower for each in added)

    def fastest(self) -> Contender | None:
        """Returns the fastest of the plans that surely win, None if none does.

        What may be slower by its nature must also beat the best of what may not.
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
                and each.speedup_over(self.reference).surely_above(least)
                and (winner is None or each.speedup_over(winner).surely_above(more))
            ]
            winner = min(surely, key=lambda each: each.seconds, default=winner)
        return winner

    def needing_no_turns(self) -> Contender | None:
        """Returns the plan that does the same with less work; None if it seems slower so far."""
        never_slower = (each for each in self.others if self.is_never_slower(each.plan))
        longest = max(never_slower, key=lambda each: each.plan.steps_per_call or 1, default=None)
        return longest if longest and longest.seconds < self.reference.seconds else None

    def possible_gain_seconds(self) -> float:
        """Returns what seems fastest saves in a step, over what has won so far or the reference.

        Within the margin it is 0.
        """
        to_beat = (self.fastest() or self.reference).seconds
        saved_seconds = to_beat - min(each.seconds for each in self.contenders)
        return saved_seconds if saved_seconds > self.margin * to_beat else 0.0
