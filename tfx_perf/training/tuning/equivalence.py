"""EquivalenceCheck: whether a plan reaches Keras' state from equal weights and batches."""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.core import errors
from tfx_perf.memory.batches import tensor_bytes
from tfx_perf.tf_internals import datasets
from tfx_perf.training.fit.timer import StepTimer, percentile
from tfx_perf.training.keras_api.variables import inner
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.tuning.choice import TrialRecord
from tfx_perf.training.tuning.contest import Contender
from tfx_perf.training.tuning.cost_model import CHECK_SHARE, Budget
from tfx_perf.training.tuning.initial_state import InitialState, variables_of
from tfx_perf.training.tuning.state_tolerance import StateTolerance, TrainedState, is_loss

# Steps of a check, its fewest calls of Keras fit, and the most bytes of batches it keeps.
_STEPS, _MIN_CALLS, _MAX_BYTES = 20, 3, 2**30
# The first look at Keras' own step need not take longer; a check runs all its steps.
_LOOK_SECONDS = 5.0
# A plan that takes this many times as long as Keras fit in its check cannot win: it is not timed.
_HOPELESS = 3.0
_RANDOM = "random: other draws, of which only the statistics could be compared"


@dataclasses.dataclass(frozen=True)
class ShortTraining:
    """The result of a few steps; the contender has 0 s per step if there was only one call."""

    contender: Contender
    step_count: int
    state: TrainedState  # not copied: the next training changes it


class EquivalenceCheck:
    """Trains a few steps with each plan, all from the same weights on the same batches.

    The reference, usually Keras' `fit`, runs once from there, and once from weights that are off by
    one rounding; see `StateTolerance`. If the two results are far apart, it runs a third time, from
    the same weights, to see whether its randomness cannot be repeated.
    """

    def __init__(
        self,
        loop: FitLoop,
        reference: TrainingPlan,
        data: tf.data.Dataset,
        *,
        start: InitialState,
        budget: Budget,
        loss_tolerance: float,
        is_exact: bool = False,
    ) -> None:
        """Reads batches from endless data: few if they are large or slow to load."""
        self._is_exact = is_exact
        self._loop, self._model, self._sync = loop, loop.functions.model, loop.sync
        self._reference = reference
        self._start, self._budget = start, budget
        self._loss_tolerance = loss_tolerance
        self._hopeless_seconds = 0.0
        self.training_seconds = 0.0  # of all steps, once traced; from `first_look` on
        self.reference_trainings = 3  # needed before plans are checked; see `first_look`
        self._expected: TrainedState  # the reference's, after all steps; set by `_expect`
        self._rounding: StateTolerance  # set by `reference`
        self._chance: StateTolerance | None = None
        self._more_seeds: tuple[int, ...] = () if is_exact else (1, 2)
        self._fewest_steps = _MIN_CALLS * loop.users_steps_per_execution  # that are conclusive
        batches = self._read_ahead(data)
        self._step_count = len(batches)  # of a training that is not stopped
        self._example_count = sum(int(datasets.row_count(batch)) for batch in batches)
        self._data = _from_memory(batches, spec=data.element_spec)
        self.one_batch = _from_memory(batches[:1], spec=data.element_spec).repeat()

    def first_look(self) -> Contender | None:
        """Returns the reference after a first look; None if there was not enough time for it.

        If steps are slow, it runs only a few: enough to decide whether any plan is worth trying.
        """
        began, limit = time.perf_counter(), self._budget.check_limit()

        def is_over(timer: StepTimer) -> bool:
            now = time.perf_counter()
            took_seconds = now - (timer.first_call_end or now)
            is_enough = took_seconds > _LOOK_SECONDS and timer.step_count >= self._fewest_steps
            return is_enough or now > limit

        first = self._train(self._reference, stop_when=is_over)
        seconds = time.perf_counter() - began
        if first.step_count < self._fewest_steps:
            self._budget.lack_time_for_check()
            self._budget.has(seconds / CHECK_SHARE, what="a first look at Keras fit")
            return None
        share = first.step_count / self._step_count
        self.training_seconds = (seconds - first.contender.compile_seconds) / share
        if share == 1:
            self._expect(first)
            self.reference_trainings -= 1
        return first.contender

    def reference(self, first: Contender) -> Contender:
        """Returns the contender that others are compared with; `first` is from `first_look`."""
        if self.reference_trainings > 2:
            self._expect(self._train_reference(self._start.restore))
        self._rounding = self._state_tolerance()
        reference = self._measure_rounding(seed=0)
        if self._sync.broadcast(self._rounding.is_large):
            again = self._train_reference(self._start.restore).state
            if not self._sync.broadcast(self._rounding.repeats(again)):
                self._rounding.allow(again, by_chance=True)
        reference.compile_seconds = first.compile_seconds
        self._hopeless_seconds = _HOPELESS * reference.step_seconds
        return reference

    def _measure_rounding(self, *, seed: int) -> Contender:
        """Trains the reference from rounded weights, and allows the difference that results."""
        rounded = self._train_reference(functools.partial(self._start.restore_rounded, seed))
        self._start.subtract_rounding(seed)
        if not self._is_exact:
            self._rounding.allow(rounded.state)
        return rounded.contender

    def _expect(self, ended: ShortTraining) -> None:
        self._step_count = ended.step_count  # all other trainings have as many
        self._expected = ended.state.kept()

    def check(self, plan: TrainingPlan) -> Contender | TrialRecord:
        """Returns the plan if worth timing, otherwise why not; raises SyncError if others end."""
        try:
            checked = self._check(plan)
        except errors.TOLERATED as error:  # a plan's errors must not stop `fit`
            with self._sync.after(error):
                self._sync.all_equal(False)
            return TrialRecord(plan=plan, status="failed", reason=errors.in_one_line(error))
        is_good = isinstance(checked, Contender)
        if not self._sync.all_equal(is_good) and is_good:
            checked = TrialRecord(plan=plan, status="failed", reason="it failed on another worker")
        return checked

    def _check(self, plan: TrainingPlan) -> Contender | TrialRecord:
        # A plan that may be slow runs step by step, so that it can be stopped.
        may_be_slow = any(each.may_be_slow for each in plan.speedups)
        half = self._step_count // 2
        per_call = 1 if may_be_slow else min(plan.steps_per_execution, half)
        limit, hopeless_seconds = self._budget.check_limit(), self._hopeless_seconds
        train = functools.partial(
            self._train,
            plan.model_copy(update={"steps_per_execution": per_call}),
            stop_when=lambda timer: (
                time.perf_counter() > limit or timer.settled_seconds() > hopeless_seconds
            ),
        )
        ended = train()
        if ended.contender.step_seconds > hopeless_seconds:  # so few steps may be slow by chance
            compile_seconds = ended.contender.compile_seconds
            ended = train()
            ended.contender.compile_seconds = compile_seconds
        good = ended.contender
        refused = functools.partial(
            TrialRecord, plan=plan, compile_time_seconds=good.compile_seconds
        )
        if good.step_seconds > hopeless_seconds:
            ratio = good.step_seconds / hopeless_seconds * _HOPELESS
            reason = f"{ratio:.0f} times the step time of {self._reference} in the check"
            return refused(status="slower", reason=reason)
        if ended.step_count < self._step_count:
            if time.perf_counter() < limit:
                steps = f"{ended.step_count} of the {self._step_count} steps of its check"
                return refused(status="failed", reason=f"it ended after {steps}")
            # A compilation that took too long is no lack: with this budget, it would do so again.
            is_compiled = ended.step_count > per_call
            if is_compiled:
                self._budget.lack_time_for_check()
            what = "its check" if is_compiled else f"compiling it ({good.compile_seconds:.0f} s)"
            return refused(status="stopped", reason=f"{what} took too long for the budget")
        different, good.note = self._compared(plan, ended.state)
        if different is not None:
            return refused(status="different", reason=different, loss=good.loss)
        return good

    def _compared(self, plan: TrainingPlan, state: TrainedState) -> tuple[str | None, str]:
        """Returns why a plan's state differs, None if it does not, and a remark."""
        tolerance, state_tolerance = self._loss_tolerance, self._rounding
        deviation = state_tolerance.exceeded(state, loss_tolerance=tolerance)
        # XLA draws other numbers from the same seeds, so masks cannot agree.
        other_masks = plan.uses_xla != bool(self._model.jit_compile)
        other_masks = other_masks and self._start.has_generators and not self._is_exact
        may_be_masks = other_masks and not state_tolerance.is_random
        may_be_rounding = self._more_seeds and not state_tolerance.is_random
        if (may_be_masks or may_be_rounding) and self._sync.broadcast(bool(deviation)):
            state = state.kept()
            state_tolerance = self._by_chance() if may_be_masks else self._by_rounding()
            deviation = state_tolerance.exceeded(state, loss_tolerance=tolerance)
        return str(deviation) if deviation else None, _RANDOM if state_tolerance.is_random else ""

    def _by_rounding(self) -> StateTolerance:
        """Measures rounding twice more: its effect on a scalar may be small once by chance."""
        for seed in self._more_seeds:
            self._measure_rounding(seed=seed)
        self._more_seeds = ()
        return self._rounding

    def _by_chance(self) -> StateTolerance:
        """Returns the tolerance for other draws of the model's random numbers, measured twice."""
        if self._chance is None:
            self._chance = self._state_tolerance()
            for seed in (1, 2):
                redraw = functools.partial(self._start.restore_redrawn, seed)
                self._chance.allow(self._train_reference(redraw).state, by_chance=True)
        return self._chance

    def _state_tolerance(self) -> StateTolerance:
        counting = {
            id(inner(variable))
            for metric in self._model.metrics
            if not is_loss(metric.name)
            for variable in metric.variables
        }
        variables = variables_of(self._model, self._loop.keras_api)
        metrics = [name for name, variable in variables.items() if id(variable) in counting]
        return StateTolerance(
            self._expected, metrics=metrics, examples=self._example_count, is_exact=self._is_exact
        )

    def _train_reference(self, restore: Callable[[], None]) -> ShortTraining:
        return self._train(self._reference, restore=restore, stop_when=lambda timer: False)

    def _train(
        self,
        plan: TrainingPlan,
        *,
        stop_when: Callable[[StepTimer], bool],
        restore: Callable[[], None] | None = None,
    ) -> ShortTraining:
        """Trains a few steps, after `restore`, until `stop_when` is true for the chief."""
        (restore or self._start.restore)()
        history, timer = self._loop.try_out(
            plan,
            self._data,
            step_count=self._step_count,
            stop_when=lambda timer: self._sync.broadcast(stop_when(timer)),
        )
        step_seconds = self._sync.broadcast(percentile(timer.steady_seconds(), 50) or 0.0)
        logs = {name: _as_array(values[-1]) for name, values in history.history.items()}
        contender = Contender(
            plan=plan,
            loss=float(np.mean(logs["loss"])) if "loss" in logs else None,
            compile_seconds=self._sync.broadcast(timer.compile_seconds()),
            step_seconds=step_seconds,
        )
        state = TrainedState(variables_of(self._model, self._loop.keras_api), logs)
        return ShortTraining(contender, timer.step_count, state)

    def _read_ahead(self, data: tf.data.Dataset) -> list[Any]:
        per_call = self._loop.users_steps_per_execution
        wanted = max(self._fewest_steps, _STEPS // per_call * per_call)  # whole calls of Keras fit
        limit = self._budget.check_limit()
        batches, held_bytes = [], 0
        for batch in data.take(wanted):
            batches.append(batch)
            held_bytes += tensor_bytes(batch)
            enough = self._sync.broadcast(held_bytes > _MAX_BYTES or time.perf_counter() > limit)
            if enough and len(batches) >= self._fewest_steps and len(batches) % per_call == 0:
                break
        return batches


def _from_memory(batches: list[Any], *, spec: Any) -> tf.data.Dataset:
    data = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=spec)
    return datasets.without_autotune(data.cache())


def _as_array(value: Any) -> np.ndarray:
    """Returns a figure of the logs in the precision that Keras computes most of them in."""
    array = np.asarray(value)
    return array.astype("float32") if array.dtype.kind == "f" else array
