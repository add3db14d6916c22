"""Chooses a plan by short trials on the user's own model and data.

Each plan first trains a few steps from the same weights on the same batches: it must
reach plain `fit`'s weights, slots, metrics and logs. Then all that did are timed in
interleaved blocks (A B C A B C), and the fastest wins if the whole interval of its speed-up
lies above 1 + margin: over plain `fit`, and what could be slower by its nature also over what
could not. Where that takes longer than it can save, or than there is time, the check decides
among those that could not. The variables are put back afterwards.

Workers that train together try the same plan at the same time: what the chief measures, and what
it decides by its clock and by what it knows of runs before, holds for all of them.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf import activity, errors, statistics
from tfx_perf.config import PerfConfig
from tfx_perf.tf_data import datasets
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.team import Team
from tfx_perf.training.trials import families
from tfx_perf.training.trials.budget import Budget
from tfx_perf.training.trials.choice import (
    MUST_BEAT,
    PlanChoice,
    TrialProgress,
    TrialRecord,
    plain,
)
from tfx_perf.training.trials.contender import Contender
from tfx_perf.training.trials.equivalence import EquivalenceCheck
from tfx_perf.training.trials.leftovers import Leftovers
from tfx_perf.training.trials.starting_point import StartingPoint
from tfx_perf.training.trials.turns import Schedule, Turn, block_seconds, in_own_thread
from tfx_perf.training.trials.variant import BuiltUnder, Variant
from tfx_perf.training.trials.worth import Prospect, Worth

_MIN_ROUNDS, _MAX_ROUNDS = 5, 12
# A small gain takes many blocks to tell from noise. They are worth it in a long training.
_MOST_ROUNDS = 60
# So few rounds do for a plan that is surely so much faster, in a training that is so short that
# a round takes more than this share of it.
_FEW_ROUNDS, _CLEARLY, _ROUND_SHARE = 3, 1.5, 0.05
# The share of the remaining budget that the check of one plan may take.
_CHECK_SHARE = 0.25


def input_wait(reading: Sequence[float], repeated: Sequence[float]) -> float:
    """Returns the share of a step in which it waits for data; 0 where noise may explain it.

    Args:
        reading: seconds per step on the data, of a few blocks.
        repeated: the same on one batch from memory.
    """
    fed, free = map(statistics.median_interval, (reading, repeated))
    return 1.0 - free.value / fed.value if free.high < fed.low else 0.0


def _block_seconds(contender: Contender) -> float:
    calls = contender.plan.steps_per_call or 1
    return block_seconds(call_seconds=calls * contender.step_seconds)


def _may_cost(plan: TrainingPlan) -> set[str]:
    """Returns what of a plan may make it slower, the type that it computes in aside."""
    return {
        each.name
        for each in plan.optimizations
        if not (each.in_plain_fit or each.is_never_slower)
    }


class Trials:
    """The trials for one `fit`."""

    def __init__(
        self,
        variants: Mapping[BuiltUnder, Variant],
        *,
        settings: PerfConfig,
        budget: Budget,
        watch: Callable[[TrialProgress], None] = lambda progress: None,
        known: Sequence[TrialRecord] = (),
        previous_plan: TrainingPlan | None = None,
        stop_when: Callable[[float], bool] = lambda step_seconds: False,
    ) -> None:
        """Prepares trials.

        Args:
            variants: the user's `fit`, not yet run, under None, and the same in other
                precisions. `x` is a `tf.data.Dataset`, the variables of model and optimizer are
                there, and the loop, which keeps what is compiled, is what will use the plan.
            settings: the sections `training`, `compilation`, `schedule` and
                `distribution`.
            budget: their time, of which some may be spent.
            watch: told before anything is tried that may end the process.
            known: records of trials that were cut off. What shares a traced function with one
                of their plans is not tried.
            previous_plan: of the run before, whose code, settings or versions were others. It is
                tried whatever that costs: without it, this run would be slower than that one.
            stop_when: asked when nothing but the reference has been run, with its seconds per
                step, whether to leave it at that.
        """
        self._variants = variants
        call, loop = variants[None].call, variants[None].loop
        self._model = call.model
        self._team = Team(call.model.distribute_strategy)
        self._loop = loop
        self._settings, self._budget = settings, budget
        self._reference = families.reference(call.model, loop, settings=settings)
        self._watch, self._stop_when = watch, stop_when
        self._previous_plan = previous_plan
        self._worth = Worth(
            step_count=loop.total_length, planned_runs=settings.schedule.run_count()
        )
        self._finished = list(known)
        self._left_out: list[tuple[families.Family, Prospect]] = []
        self._data = datasets.without_autotune(call.arguments["x"].repeat())
        self._began = 0.0
        self._training_seconds = 0.0  # what a short training takes, its function being traced
        self._ran_out_of_time = self._decides_by_turns = False
        self._input_wait: float | None = None

    def run(self) -> PlanChoice:
        """Runs the trials within the budget and restores the model.

        Raises:
            TeamError: the others do not come to the end of it, where several workers train; nothing
                is restored then, for which they would have to.
        """
        self._began, began = time.time(), time.perf_counter()
        self._leftovers = Leftovers()
        start = StartingPoint(self._variants)
        self._budget.keep_back(time.perf_counter() - began)  # to put all back, and look again
        try:
            contenders = self._tried(start)
        except BaseException as error:
            self._team.end_if_alone(error)
            with self._team.soon(errors.in_one_line(error)):
                self._put_back(start)
            raise
        self._put_back(start)
        choice = self._judge(contenders)
        return choice.model_copy(
            update={"trial_leftover_bytes": self._leftovers.beside(choice.plan)}
        )

    def _tried(self, start: StartingPoint) -> list[Contender]:
        """Returns the reference and the plans that were worth timing, with their blocks."""
        contenders, one_batch = self._checked(start)
        if len(contenders) > 1 and self._team.decides(self._takes_turns(contenders)):
            self._decides_by_turns = True
            seconds = self._turns_seconds(contenders, rounds=_FEW_ROUNDS)
            if self._budget.has(seconds, what="timing plans in turns"):
                self._loop.take_turns(self._schedule(contenders, one_batch), self._data)
            else:  # its compiler took what there was
                self._ran_out_of_time = True
        return contenders

    def _put_back(self, start: StartingPoint) -> None:
        start.restore()
        self._model.reset_metrics()

    def _checked(self, start: StartingPoint) -> tuple[list[Contender], tf.data.Dataset]:
        """Returns the reference and the plans that are worth timing, and data of one batch."""
        self._try([self._reference], how="trying")
        equivalence = EquivalenceCheck(
            self._variants,
            self._reference,
            self._data,
            start=start,
            limit=self._check_limit,
            loss_tolerance=self._settings.training.loss_tolerance,
            team=self._team,
        )
        began = time.perf_counter()
        with self._leftovers.of([self._reference]):
            first = equivalence.first_look()
        if equivalence.ran_out_of_time:
            seconds = time.perf_counter() - began
            self._budget.has(seconds / _CHECK_SHARE, what="a first look at plain fit")
            return [], equivalence.one_batch
        contenders = [first]
        if not self._stop_when(first.step_seconds):
            self._training_seconds = time.perf_counter() - began - first.compile_seconds
            to_try = self._to_try(first)
            for number, plans in enumerate(to_try, 1):
                best = self._best_of_another_kind(plans[0], contenders)
                if best is not None:
                    reason = f"not tried: {best} is the best in the model's own precision"
                    self._finished += [
                        TrialRecord(plan=plan, status="untried", reason=reason) for plan in plans
                    ]
                    continue
                prospect = self._prospect(plans[0], contenders)
                is_worth_it = prospect.is_worth_it or self._is_previous(plans[0])
                if not self._team.decides(is_worth_it):
                    self._left_out.append((plans, prospect))
                    continue
                # The reference trains twice more before anything is held against it.
                trainings = 3 if contenders[0] is first else 1
                seconds = self._needed_seconds(plans, contenders, trainings=trainings)
                if not self._budget.has(seconds, what=f"trying {plans[0]}"):
                    self._ran_out_of_time = True
                    break
                if contenders[0] is first:
                    contenders = [equivalence.reference(first)]
                self._try(plans, how=f"trying plan {number} of {len(to_try)}:")
                with self._leftovers.of(plans):
                    found = equivalence.check(plans[0])
                if isinstance(found, TrialRecord):
                    self._finished += [found.model_copy(update={"plan": plan}) for plan in plans]
                else:
                    contenders += [
                        dataclasses.replace(found, plan=plan, blocks=[]) for plan in plans
                    ]
        self._ran_out_of_time |= equivalence.ran_out_of_time
        return contenders, equivalence.one_batch

    def _to_try(self, reference: Contender) -> list[families.Family]:
        known = [record.plan for record in self._finished]
        to_try = []
        for precision, variant in self._variants.items():
            found, refused = families.families(
                variant.call.model,
                variant.loop,
                settings=self._settings,
                step_seconds=reference.step_seconds,
                precision=precision,
            )
            self._finished += [record for record in refused if record.plan not in known]
            to_try += [
                plans
                for plans in found
                if not any(families.same_function(plans[0], plan) for plan in known)
            ]
        return to_try if self._team.agrees(str(to_try)) else []

    def _best_of_another_kind(
        self, plan: TrainingPlan, contenders: list[Contender]
    ) -> TrainingPlan | None:
        """Returns the best plan in the model's own precision, if one in a narrower type is unlike.

        What the narrower type may gain must not pay for what was not worth it without.
        """
        if plan.precision is None or self._is_previous(plan):
            return None
        own = (each for each in contenders if each.plan.precision is None)
        best = min(own, key=lambda contender: contender.step_seconds).plan
        return None if _may_cost(plan) == _may_cost(best) else best

    def _is_previous(self, plan: TrainingPlan) -> bool:
        previous = self._previous_plan
        return previous is not None and families.same_function(plan, previous)

    def _prospect(self, plan: TrainingPlan, contenders: list[Contender]) -> Prospect:
        best = min(contenders, key=lambda contender: contender.step_seconds)
        # A plan of the kind that needs none decides nothing about turns.
        needs_turns = not (self._takes_turns(contenders) or self._is_never_slower(plan))
        return self._worth.prospect(
            plan,
            best=best.plan,
            step_seconds=best.step_seconds,
            operation_count=self._variants[best.plan.precision].loop.functions.operation_count(
                best.plan
            ),
            compile_seconds=contenders[0].compile_seconds,
            beside_seconds=self._turns_seconds(contenders) if needs_turns else 0.0,
        )

    def _needed_seconds(
        self, plans: families.Family, contenders: list[Contender], *, trainings: int
    ) -> float:
        """Returns what plans of one function take until they are judged, at the least.

        What the compiler takes nobody knows: no less than for the reference.
        """
        reference = contenders[0]
        with_them = [*contenders, *(dataclasses.replace(reference, plan=plan) for plan in plans)]
        seconds = reference.compile_seconds + trainings * self._training_seconds
        if self._takes_turns(with_them):
            seconds += self._turns_seconds(with_them, rounds=_FEW_ROUNDS)
        return seconds

    def _is_never_slower(self, plan: TrainingPlan) -> bool:
        added = set(plan.optimizations) - set(self._reference.optimizations)
        return all(each.is_never_slower for each in added)

    def _takes_turns(self, contenders: list[Contender]) -> bool:
        """Whether the plans are timed: if one may be slower, or if that is worth its time."""
        _, *others = contenders
        if not all(self._is_never_slower(other.plan) for other in others):
            return True
        return bool(others) and self._prospect_of_turns(contenders).is_worth_it

    def _prospect_of_turns(self, contenders: list[Contender]) -> Prospect:
        fastest = min(contender.step_seconds for contender in contenders)
        return self._worth.prospect_of_turns(
            self._turns_seconds(contenders), step_seconds=fastest
        )

    def _turns_seconds(
        self, contenders: list[Contender], *, rounds: int = _MIN_ROUNDS
    ) -> float:
        """Returns what turns take, the look at the wait for input included."""
        round_seconds = sum(_block_seconds(each) for each in contenders)
        # They begin as a training does.
        look_seconds = self._look_seconds(contenders[-1:], rounds=rounds)
        return self._training_seconds + rounds * round_seconds + look_seconds

    def _look_seconds(self, contenders: list[Contender], *, rounds: int = _MIN_ROUNDS) -> float:
        """Returns what the look at the wait for input takes, whoever wins."""
        longest_seconds = max(_block_seconds(each) for each in contenders)
        return self._training_seconds + 2 * rounds * longest_seconds

    def _untried(self) -> list[TrialRecord]:
        return [
            TrialRecord(plan=plan, status="untried", reason=str(prospect))
            for plans, prospect in self._left_out
            for plan in plans
        ]

    def _enough_runs(self, contenders: list[Contender]) -> int | None:
        """Returns for how many planned runs the next one had better try all of it again."""
        beside_seconds = time.time() - self._began
        prospects = [prospect for _, prospect in self._left_out]
        if len(contenders) > 1 and not self._decides_by_turns:
            prospects.append(self._prospect_of_turns(contenders))
        counts = [each.runs_needed(beside_seconds=beside_seconds) for each in prospects]
        return min(filter(None, counts), default=None)

    def _turn(self, plan: TrainingPlan, *, iterator: Any = None) -> Turn:
        turn = self._variants[plan.precision].loop.turn(plan, iterator=iterator)
        return turn if plan.precision is None else in_own_thread(turn)

    def _check_limit(self) -> float:
        return time.perf_counter() + self._budget.left_seconds * _CHECK_SHARE

    def _try(self, plans: Iterable[TrainingPlan], *, how: str) -> None:
        running = tuple(plans)
        activity.say(f"{how} {'; '.join(map(str, running))}")
        self._watch(
            TrialProgress(began=self._began, running=running, finished=tuple(self._finished))
        )

    def _schedule(self, contenders: list[Contender], one_batch: tf.data.Dataset) -> Schedule:
        """Fills the contenders' blocks until decided, then measures the wait for input."""
        # The checks read from memory; on the real data a step may take longer.
        self._shorten(contenders, step_seconds=(yield self._loop.turn(self._reference)))
        turns = [self._turn(contender.plan) for contender in contenders]
        began = time.perf_counter()
        for round_index in range(_MOST_ROUNDS):
            spent_seconds = time.perf_counter() - began
            if round_index >= _MAX_ROUNDS and not self._team.decides(
                self._may_pay(contenders, spent_seconds)
            ):
                break
            round_began = time.perf_counter()
            for contender, turn in zip(contenders, turns, strict=True):
                self._try(
                    [contender.plan],
                    how=f"timing {len(contenders)} plans in turns: round {round_index + 1},",
                )
                contender.blocks.append((yield turn))
            round_seconds = time.perf_counter() - round_began
            is_decided = self._is_decided(
                contenders,
                round_seconds=round_seconds,
                spent_seconds=time.perf_counter() - began,
            )
            if self._team.decides(is_decided):
                break
            seconds = round_seconds + self._look_seconds(contenders)
            if not self._budget.has(seconds, what="a round of turns more"):
                if self._fastest(contenders) is None:
                    self._ran_out_of_time = True
                    return
                break
        # Not in turns with the real data: their buffers would fill up in the meantime. But at about
        # the same time, since a host is now faster and now slower.
        winner = self._fastest(contenders) or contenders[0]
        self._try([winner.plan], how="measuring the wait for data:")
        iterator = self._loop.iterator_over(one_batch)
        reading, repeated = [], []
        rounds = min(_MIN_ROUNDS, len(winner.blocks))
        for _ in range(rounds):
            reading.append((yield self._turn(winner.plan)))
        for _ in range(rounds):
            repeated.append((yield self._turn(winner.plan, iterator=iterator)))
        self._input_wait = input_wait(reading, repeated)

    @staticmethod
    def _shorten(contenders: list[Contender], *, step_seconds: float) -> None:
        """Limits the length of the contenders' calls and drops those that become equal."""
        longest = families.longest_call(step_seconds)
        reference, *others = contenders
        by_plan: dict[TrainingPlan, Contender] = {}
        for other in others:
            steps = min(other.plan.steps_per_call or 1, longest)
            plan = other.plan.model_copy(update={"steps_per_call": steps})
            by_plan.setdefault(plan, dataclasses.replace(other, plan=plan))
        contenders[:] = [reference, *by_plan.values()]

    def _may_pay(self, contenders: list[Contender], spent_seconds: float) -> bool:
        """Whether what seems fastest, if it is, saves more than telling has cost.

        Over the plan that has surely won so far, or else over the reference.
        """
        to_beat = (self._fastest(contenders) or contenders[0]).seconds
        saved_seconds = to_beat - min(contender.seconds for contender in contenders)
        is_enough = saved_seconds > self._settings.training.margin * to_beat
        return is_enough and saved_seconds * (self._loop.total_length or 0) > spent_seconds

    def _is_decided(
        self, contenders: list[Contender], *, round_seconds: float, spent_seconds: float
    ) -> bool:
        """Whether one is surely the fastest, after as many rounds as the training is worth."""
        best = self._fastest(contenders)
        if best is None:
            return False
        if len(best.blocks) >= _MIN_ROUNDS:
            return not self._may_pay(contenders, spent_seconds)
        training_seconds = self._worth.training_seconds(float(np.median(best.blocks)))
        return round_seconds > _ROUND_SHARE * training_seconds

    def _fastest(self, contenders: list[Contender]) -> Contender | None:
        """Returns the fastest of the plans that surely win, None if none does.

        What may be slower by its nature must also beat the best of what may not.
        """
        reference, *others = contenders
        round_count = len(reference.blocks)
        if round_count < _FEW_ROUNDS:
            return None
        more = 1.0 + self._settings.training.margin
        least = more if round_count >= _MIN_ROUNDS else max(more, _CLEARLY)
        winner: Contender | None = None
        for is_never_slower in (True, False):
            surely = [
                each
                for each in others
                if self._is_never_slower(each.plan) is is_never_slower
                and each.speedup_over(reference).surely_above(least)
                and (winner is None or each.speedup_over(winner).surely_above(more))
            ]
            winner = min(surely, key=lambda each: each.seconds, default=winner)
        return winner

    def _needing_no_turns(self, contenders: list[Contender]) -> Contender | None:
        """Returns the plan that does the same with less work; None if it seems slower so far."""
        reference, *others = contenders
        never_slower = (each for each in others if self._is_never_slower(each.plan))
        longest = max(never_slower, key=lambda each: each.plan.steps_per_call or 1, default=None)
        return longest if longest and longest.seconds < reference.seconds else None

    def _judge(self, contenders: list[Contender]) -> PlanChoice:
        if not contenders:
            reason = f"the budget ended before the first check: {self._lack}"
            return plain(reason, budget_lack=self._lack)
        reference, *others = contenders
        winner, ended = self._fastest(contenders), ""
        if winner is None:
            has_taken_turns = len(reference.blocks) >= _MIN_ROUNDS
            if self._ran_out_of_time or (self._decides_by_turns and not has_taken_turns):
                ended = f"the budget ended before a plan had surely beaten it: {self._lack}"
            if not has_taken_turns:
                winner = self._needing_no_turns(contenders)
        decides_by_checks = others and not self._decides_by_turns
        if decides_by_checks:  # which was the same for all of them, in calls of a few steps
            others = [max(others, key=lambda contender: contender.plan.steps_per_call or 1)]
        if winner:
            reason = MUST_BEAT
        elif decides_by_checks:
            reason = "nothing beat it in the checks"
        elif ended:
            reason = ended
        elif self._left_out and not (others or self._has_tried()):
            reason = "the training is too short for trials of what may be faster"
        else:
            reason = "nothing beat it"
        first = reference.reference_record(reason)
        records = [other.record(reference, chosen=other is winner) for other in others]
        chosen = next((record for record in records if record.status == "chosen"), first)
        said = [chosen.reason, ended] if winner and ended else [chosen.reason]
        return PlanChoice(
            plan=chosen.plan,
            plan_reason="; ".join(said),
            trials=(first, *map(self._with_shapes, (*records, *self._finished)), *self._untried()),
            input_wait_ratio=self._input_wait,
            is_settled=not self._ran_out_of_time,
            budget_lack=self._lack if self._ran_out_of_time else "",
            planned_runs=self._worth.planned_runs,
            enough_runs=self._enough_runs(contenders),
        )

    @property
    def _lack(self) -> str:
        """What the budget had no room for."""
        return self._budget.lack or (
            "a check takes more than the quarter of it that it may take; a larger "
            "training.trial_budget_seconds has room for it"
        )

    def _has_tried(self) -> bool:
        return any(record.status in ("slower", "different") for record in self._finished)

    def _with_shapes(self, record: TrialRecord) -> TrialRecord:
        if record.plan.precision:  # traced by another loop
            return record
        shapes = self._loop.functions.compiled_shapes(record.plan)
        return record.model_copy(update={"compiled_shapes": shapes}) if shapes else record
