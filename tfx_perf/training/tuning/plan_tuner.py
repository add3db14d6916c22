"""Chooses a plan by short trials on the user's own model and data.

Each plan first trains a few steps from the same weights on the same batches. It must produce the
same weights, slots, metrics and logs as Keras. Plans that pass this check are timed in interleaved
blocks (A B C A B C). The fastest wins if the whole interval of its speedup over Keras' `fit` lies
above 1 + margin; a plan that could turn out slower must also beat the plans that cannot. If
timing takes longer than it can save, or than the budget allows, the check decides among the plans
that cannot be slower. The variables are restored afterwards.

Workers that train together try the same plan at the same time. The chief's measurements and
decisions, based on its clock and its knowledge of earlier runs, hold for all of them.
"""

import inspect
import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import tensorflow as tf

from tfx_perf.config import PerfConfig
from tfx_perf.core import console, statistics
from tfx_perf.core.interception import FitCall
from tfx_perf.tf_internals import datasets
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.loop.turns import Schedule
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.tuning import families
from tfx_perf.training.tuning.choice import MUST_BEAT, PlanChoice, TrialProgress, TrialRecord, plain
from tfx_perf.training.tuning.contest import FEW_ROUNDS, MIN_ROUNDS, Contender, Contest
from tfx_perf.training.tuning.cost_model import Budget, CostEstimate, CostModel
from tfx_perf.training.tuning.earlier import KnownPlan
from tfx_perf.training.tuning.equivalence import EquivalenceCheck
from tfx_perf.training.tuning.initial_state import InitialState

_USUAL_MAX_ROUNDS = 12
# Many blocks are needed to tell a small gain from noise. They pay only in a long training.
_ABSOLUTE_MAX_ROUNDS = 60
# If one round takes more than this share of the training time, `FEW_ROUNDS` have to suffice.
_ROUND_SHARE = 0.05


def input_wait(reading: Sequence[float], repeated: Sequence[float]) -> float:
    """Returns the share of a step spent waiting for data; 0 if noise may explain it."""
    fed, free = map(statistics.median_interval, (reading, repeated))
    return 1.0 - free.value / fed.value if free.high < fed.low else 0.0


class PlanTuner:
    """The trials for one `fit`."""

    def __init__(
        self,
        call: FitCall,
        loop: FitLoop,
        *,
        settings: PerfConfig,
        budget: Budget,
        watch: Callable[[TrialProgress], None] = lambda progress: None,
        known: KnownPlan,
        stop_when: Callable[[float], bool] = lambda step_seconds: False,
    ) -> None:
        """Prepares trials.

        Args:
            call: the user's `fit`, not yet run, on a `tf.data.Dataset`; all variables exist.
            loop: the loop that will use the plan; it keeps compiled functions.
            settings: the sections `training`, `compilation`, `schedule` and `distribution`.
            budget: the time for trials, some of which may be spent already.
            watch: called before each trial that may end the process.
            known: plans that share a traced function with its `trials` are skipped. Its previous
                plan is tried within the budget, even if it may not pay: the last run was that fast.
            stop_when: called with the reference's seconds per step; true skips all other plans.
        """
        self._model = call.model
        self._loop, self._sync = loop, loop.sync
        self._settings, self._budget = settings, budget
        self._reference = families.reference(loop, settings=settings)
        self._watch, self._stop_when = watch, stop_when
        self._previous_plan = known.previous_plan
        self._cost_model = CostModel(
            step_count=loop.likely_total_length, expected_runs=settings.schedule.run_count()
        )
        self._finished = list(known.trials)
        self._left_out: list[tuple[families.Family, CostEstimate]] = []
        self._data = datasets.without_autotune(call.arguments["x"].repeat())
        self._began = 0.0
        self._training_seconds = 0.0  # of a check, once its function is traced
        self._decides_by_turns = False
        self._input_wait: float | None = None

    def run(self) -> PlanChoice:
        """Runs the trials and restores the model, unless a SyncError ends them."""
        self._began, began = time.time(), time.perf_counter()
        self._leftovers = families.TuningMemory()
        start = InitialState(self._model, self._loop.keras_api)
        self._budget.set_aside(time.perf_counter() - began)  # to restore, and to read memory again
        try:
            contest = self._run_trials(start)
        except BaseException as error:
            with self._sync.after(error):
                self._restore(start)
            raise
        self._restore(start)
        choice = self._judge(contest)
        return choice.model_copy(
            update={"trial_leftover_bytes": self._leftovers.beside(choice.plan)}
        )

    def _run_trials(self, start: InitialState) -> Contest | None:
        """Returns the plans that passed their checks, with timed blocks; None if none was made."""
        contest, one_batch = self._run_checks(start)
        if contest and contest.others and self._sync.broadcast(self._takes_turns(contest)):
            self._decides_by_turns = True
            seconds = self._turns_seconds(contest, rounds=FEW_ROUNDS)
            if self._budget.has(seconds, what="timing plans in turns"):
                schedule = self._schedule(contest, one_batch)
                self._loop.take_turns(schedule, self._data)
                if inspect.getgeneratorstate(schedule) != inspect.GEN_CLOSED:
                    self._budget.lack = "`fit` ended while plans were timed, perhaps with its data"
        return contest

    def _restore(self, start: InitialState) -> None:
        start.restore()
        self._model.reset_metrics()

    def _run_checks(self, start: InitialState) -> tuple[Contest | None, tf.data.Dataset]:
        self._announce([self._reference], how="trying")
        equivalence = EquivalenceCheck(
            self._loop,
            self._reference,
            self._data,
            start=start,
            budget=self._budget,
            loss_tolerance=self._settings.training.loss_tolerance,
            is_exact=families.must_be_exact(self._settings),
        )
        with self._leftovers.of([self._reference]):
            first = equivalence.first_look()
        if first is None:
            return None, equivalence.one_batch
        contest = Contest(first, margin=self._settings.training.margin)
        if not self._stop_when(first.step_seconds):
            self._training_seconds = equivalence.training_seconds
            to_try = self._to_try(step_seconds=first.step_seconds)
            for number, plans in enumerate(to_try, 1):
                if not self._is_worth_trying(plans, contest):
                    continue
                trainings = 1
                if contest.reference is first:
                    trainings += equivalence.reference_trainings
                seconds = self._needed_seconds(plans, contest, trainings=trainings)
                if not self._budget.has(seconds, what=f"trying {plans[0]}"):
                    break
                if contest.reference is first:
                    contest.reference = equivalence.reference(first)
                self._announce(plans, how=f"trying plan {number} of {len(to_try)}:")
                with self._leftovers.of(plans):
                    checked = equivalence.check(plans[0])
                if isinstance(checked, TrialRecord):
                    self._finished += [checked.model_copy(update={"plan": plan}) for plan in plans]
                else:
                    contest.add(checked, plans)
        return contest, equivalence.one_batch

    def _is_worth_trying(self, plans: families.Family, contest: Contest) -> bool:
        """Whether plans of one function may save more than they cost; if not, records why."""
        prospect, previous = self._prospect(plans[0], contest), self._previous_plan
        is_previous = previous is not None and families.same_function(plans[0], previous)
        if not self._sync.broadcast(prospect.is_worth_it or is_previous):
            self._left_out.append((plans, prospect))
            return False
        return True

    def _to_try(self, *, step_seconds: float) -> list[families.Family]:
        known = [record.plan for record in self._finished]
        plans_by_family, refused = families.families(
            self._loop, settings=self._settings, step_seconds=step_seconds
        )
        self._finished += [record for record in refused if record.plan not in known]
        to_try = [
            plans
            for plans in plans_by_family
            if not any(families.same_function(plans[0], plan) for plan in known)
        ]
        return to_try if self._sync.all_equal(to_try) else []

    def _prospect(self, plan: TrainingPlan, contest: Contest) -> CostEstimate:
        best = contest.first_in_checks
        # A plan that is never slower does not make timing in turns necessary.
        needs_turns = not (self._takes_turns(contest) or contest.is_never_slower(plan))
        return self._cost_model.prospect(
            plan,
            tried={speedup for each in contest.contenders for speedup in each.plan.speedups},
            step_seconds=best.step_seconds,
            operation_count=self._loop.functions.operation_count(best.plan),
            compile_seconds=contest.reference.compile_seconds,
            extra_seconds=self._turns_seconds(contest) if needs_turns else 0.0,
        )

    def _needed_seconds(self, plans: families.Family, contest: Contest, *, trainings: int) -> float:
        """Returns the fewest seconds to judge plans if they compile as fast as the reference."""
        with_them = contest.joined_by(plans)
        seconds = contest.reference.compile_seconds + trainings * self._training_seconds
        if self._takes_turns(with_them):
            seconds += self._turns_seconds(with_them, rounds=FEW_ROUNDS)
        return seconds

    def _takes_turns(self, contest: Contest) -> bool:
        """Whether to time the plans: one of them may be slower, or timing is worth its cost."""
        if not all(contest.is_never_slower(other.plan) for other in contest.others):
            return True
        return bool(contest.others) and self._prospect_of_turns(contest).is_worth_it

    def _prospect_of_turns(self, contest: Contest) -> CostEstimate:
        step_seconds = contest.first_in_checks.step_seconds
        return self._cost_model.prospect_of_turns(
            self._turns_seconds(contest), step_seconds=step_seconds
        )

    def _turns_seconds(self, contest: Contest, *, rounds: int = MIN_ROUNDS) -> float:
        # Starting the turns takes about as long as the training of a check.
        wait_seconds = self._input_wait_seconds(contest.contenders[-1:])
        return self._training_seconds + rounds * contest.round_seconds + wait_seconds

    def _input_wait_seconds(self, possible_winners: Sequence[Contender]) -> float:
        longest_seconds = max(each.block_seconds for each in possible_winners)
        return self._training_seconds + 2 * FEW_ROUNDS * longest_seconds

    def _untried(self) -> list[TrialRecord]:
        return [
            TrialRecord(plan=plan, status="untried", reason=str(prospect))
            for plans, prospect in self._left_out
            for plan in plans
        ]

    def _enough_runs(self, contest: Contest) -> int | None:
        """Returns the fewest expected runs for which trying more would pay; None if none would."""
        extra_seconds = time.time() - self._began
        prospects = [prospect for _, prospect in self._left_out]
        if contest.others and not self._decides_by_turns:
            prospects.append(self._prospect_of_turns(contest))
        counts = [each.runs_needed(extra_seconds=extra_seconds) for each in prospects]
        return min(filter(None, counts), default=None)

    def _announce(self, plans: Iterable[TrainingPlan], *, how: str) -> None:
        running = tuple(plans)
        console.set_status(f"{how} {'; '.join(map(str, running))}")
        self._watch(
            TrialProgress(began=self._began, running=running, finished=tuple(self._finished))
        )

    def _schedule(self, contest: Contest, one_batch: tf.data.Dataset) -> Schedule:
        """Times the contenders in rounds until decided, then measures the wait for input."""
        # The checks read from memory; on the real data a step may take longer.
        contest.limit_calls(families.longest_call((yield self._loop.turn(self._reference))))
        contenders = contest.contenders
        turns = [self._loop.turn(contender.plan) for contender in contenders]
        began = time.perf_counter()
        for round_index in range(_ABSOLUTE_MAX_ROUNDS):
            spent_seconds = time.perf_counter() - began
            if round_index >= _USUAL_MAX_ROUNDS and not self._sync.broadcast(
                self._more_timing_may_pay(contest, spent_seconds)
            ):
                break
            round_began, blocks = time.perf_counter(), []
            for contender, turn in zip(contenders, turns, strict=True):
                self._announce(
                    [contender.plan],
                    how=f"timing {len(contenders)} plans in turns: round {round_index + 1},",
                )
                blocks.append((yield turn))
            contest.add_round(blocks)
            round_seconds = time.perf_counter() - round_began
            is_decided = self._is_decided(
                contest, round_seconds=round_seconds, spent_seconds=time.perf_counter() - began
            )
            if self._sync.broadcast(is_decided):
                break
            lack = self._budget.lack
            seconds = round_seconds + self._input_wait_seconds(contenders)
            if not self._budget.has(seconds, what="another round of turns"):
                if contest.fastest() is None:
                    return
                self._budget.lack = lack  # a plan has won, so this lack does not matter
                break
        # Not interleaved: the real data's buffers would fill up while the repeated batch runs. But
        # both are timed within a short period, since the speed of a host varies.
        winner = contest.fastest() or contest.reference
        self._announce([winner.plan], how="measuring the wait for data:")
        iterator = self._loop.iterator_over(one_batch)
        reading, repeated = [], []
        for _ in range(FEW_ROUNDS):
            reading.append((yield self._loop.turn(winner.plan)))
        for _ in range(FEW_ROUNDS):
            repeated.append((yield self._loop.turn(winner.plan, iterator=iterator)))
        self._input_wait = input_wait(reading, repeated)

    def _more_timing_may_pay(self, contest: Contest, spent_seconds: float) -> bool:
        """Whether the apparent winner would save more than timing has cost so far."""
        saved_seconds = contest.possible_gain_seconds() * self._cost_model.step_count
        return saved_seconds > spent_seconds

    def _is_decided(self, contest: Contest, *, round_seconds: float, spent_seconds: float) -> bool:
        """Whether a plan surely wins, after enough rounds for the length of this training."""
        best = contest.fastest()
        if best is None:
            return False
        if contest.round_count >= MIN_ROUNDS:
            return not self._more_timing_may_pay(contest, spent_seconds)
        training_seconds = self._cost_model.training_seconds(float(np.median(best.blocks)))
        return round_seconds > _ROUND_SHARE * training_seconds

    def _judge(self, contest: Contest | None) -> PlanChoice:
        lack = self._budget.lack
        if contest is None:
            return plain(f"trials ended before the first check: {lack}", budget_lack=lack)
        reference, others = contest.reference, contest.others
        winner, ended = contest.fastest(), ""
        if winner is None:
            if lack:
                ended = f"trials ended before a plan had surely beaten it: {lack}"
            if contest.round_count < MIN_ROUNDS:
                winner = contest.winner_without_turns()
        has_tried = any(record.status in ("slower", "different") for record in self._finished)
        decides_by_checks = others and not self._decides_by_turns
        if decides_by_checks:  # all share one check, in calls of a few steps
            others = [max(others, key=lambda contender: contender.plan.steps_per_execution or 1)]
        if winner:
            reason = MUST_BEAT
        elif decides_by_checks:
            reason = "nothing beat it in the checks"
        elif ended:
            reason = ended
        elif self._left_out and not (others or has_tried):
            prospects = (each for _, each in self._left_out)
            best = max(prospects, key=lambda each: each.saving_seconds)
            reason = f"the training is too short to try other plans: one would cost {best.summary}"
        else:
            reason = "nothing beat it"
        first = reference.reference_record(reason)
        records = [other.record(reference, winner) for other in others]
        chosen = next((record for record in records if record.status == "chosen"), first)
        reasons = [chosen.reason, ended] if winner and ended else [chosen.reason]
        return PlanChoice(
            plan=chosen.plan,
            plan_reason="; ".join(reasons),
            trials=(first, *map(self._with_shapes, (*records, *self._finished)), *self._untried()),
            input_wait_ratio=self._input_wait,
            # Checks give one sample of a few steps for each plan: their result may be chance.
            is_settled=not lack and (bool(winner) or not decides_by_checks),
            budget_lack=lack,
            expected_runs=self._cost_model.expected_runs,
            enough_runs=self._enough_runs(contest),
        )

    def _with_shapes(self, record: TrialRecord) -> TrialRecord:
        traced = self._loop.functions.used_by(record.plan)
        shapes = None if traced is None else traced.compiled_shapes
        return record.model_copy(update={"compiled_shapes": shapes}) if shapes else record
