"""EquivalenceCheck: does a plan reach plain `fit`'s loss from the same weights and batches?"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf import datasets
from tfx_perf.memory import breakdown
from tfx_perf.training.loop import Loop
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.timer import StepTimer, percentile
from tfx_perf.training.trials.contender import Contender
from tfx_perf.training.trials.trial_record import TrialRecord

# Steps of a check, calls of plain fit at the least, and bytes of batches kept for it.
_STEPS, _MIN_CALLS, _MAX_BYTES = 20, 3, 2**30
# A narrower type may train the same for a while; this often over the same batches.
_PASSES = 5
# A plan this much slower than plain fit in its check cannot win; timing it would be waste.
_HOPELESS = 3.0


class EquivalenceCheck:
    """Trains a few steps with each plan, all from the same weights on the same batches.

    The reference, as a rule plain `fit`, runs twice: by how much its loss differs from itself
    (dropout) is added to what a plan's may differ.

    Attributes:
        one_batch: one batch of the data from memory, for ever.
        ran_out_of_time: whether a check was stopped because its time was up.
    """

    def __init__(
        self,
        loops: Mapping[str | None, Loop],
        reference: TrainingPlan,
        data: tf.data.Dataset,
        *,
        restore: Callable[[], None],
        limit: Callable[[], float],
        loss_tolerance: float,
    ) -> None:
        """Reads the batches: few if they are large or slow to come.

        Args:
            loops: run the plans, by their precision.
            reference: what they are held to.
            data: endless.
            restore: puts the variables back to where all checks begin.
            limit: returns when a check that begins now must end, on `time.perf_counter`'s clock.
            loss_tolerance: relative difference of the loss that is allowed.
        """
        self._loops = loops
        self._reference_curve: np.ndarray | None = None
        self._reference = reference
        self.ran_out_of_time = False
        self._restore = restore
        self._limit = limit
        self._loss_tolerance = loss_tolerance
        self._allowed = self._hopeless_seconds = self._reference_loss = 0.0
        self._fewest = _MIN_CALLS * loops[None].users_steps_per_call
        batches = self._read_ahead(data)
        self._step_count = len(batches)
        self._spec = data.element_spec
        self._data = self._from_memory(batches)
        self.one_batch = self._from_memory(batches[:1]).repeat()

    def first_look(self) -> Contender | None:
        """Returns what is seen of the reference; None if there is no time even for it."""
        first, step_count = self._train(self._reference)
        if step_count < self._fewest:
            self.ran_out_of_time = True
            return None
        return first

    def reference(self, first: Contender) -> Contender:
        """Returns what the others are held to; must come before `check`.

        Args:
            first: what `first_look` returned.
        """
        reference, _ = self._train(self._reference, stop_when=lambda timer: False)
        reference.compile_seconds = first.compile_seconds
        spread = relative_difference(first.loss, reference.loss)
        self._allowed = self._loss_tolerance + 2 * spread
        self._hopeless_seconds = _HOPELESS * reference.step_seconds
        self._reference_loss = reference.loss
        return reference

    def check(self, plan: TrainingPlan) -> Contender | TrialRecord:
        """Returns the plan if it is worth timing, else the record of why it is not."""
        try:
            return self._check(plan)
        except Exception as error:  # whatever a plan raises, fit goes on
            return TrialRecord(plan=plan, status="failed", reason=in_one_line(error))

    def _check(self, plan: TrainingPlan) -> Contender | TrialRecord:
        # XLA goes step by step, because it may be so slow that it must be stopped.
        per_call = 1 if plan.xla else min(plan.steps_per_call, self._step_count // 2)
        limit, hopeless_seconds = self._limit(), self._hopeless_seconds
        tried = plan.model_copy(update={"steps_per_call": per_call})
        found, step_count = self._train(
            tried,
            stop_when=lambda timer: time.perf_counter() > limit
            or timer.settled_seconds() > hopeless_seconds,
        )
        if found.step_seconds > hopeless_seconds:
            ratio = found.step_seconds / hopeless_seconds * _HOPELESS
            return TrialRecord(
                plan=plan,
                status="slower",
                reason=f"{ratio:.0f} times {self._reference}'s step time in the check",
                compile_time_seconds=found.compile_seconds,
            )
        difference = relative_difference(found.loss, self._reference_loss)
        if plan.precision and step_count == self._step_count and difference <= self._allowed:
            difference, step_count = self._curve_difference(tried)
        if step_count < self._step_count:
            # With the same budget a compilation would take too long again.
            is_compiled = step_count > per_call
            self.ran_out_of_time |= is_compiled
            what = "its check" if is_compiled else f"compiling it ({found.compile_seconds:.0f} s)"
            return TrialRecord(
                plan=plan,
                status="failed",
                reason=f"{what} took too long for the budget",
                compile_time_seconds=found.compile_seconds,
            )
        if not difference <= self._allowed:  # also if it is NaN
            return TrialRecord(
                plan=plan,
                status="different",
                reason=f"loss differs by {difference:.1%} from {self._reference}'s, "
                f"allowed {self._allowed:.1%}",
                loss=found.loss,
                compile_time_seconds=found.compile_seconds,
            )
        return found

    def _train(
        self, plan: TrainingPlan, *, stop_when: Callable[[StepTimer], bool] | None = None
    ) -> tuple[Contender, int]:
        """Returns what was seen (0 s a step if it ended with the first call), and its steps."""
        losses, timer = self._losses(plan, stop_when=stop_when)
        step_seconds = percentile(timer.steady_seconds(), 50) or 0.0
        contender = Contender(
            plan=plan,
            loss=float(losses[-1]),
            compile_seconds=max(0.0, timer.first_call_seconds - step_seconds),
            step_seconds=step_seconds,
        )
        return contender, timer.step_count

    def _losses(
        self,
        plan: TrainingPlan,
        *,
        passes: int = 1,
        stop_when: Callable[[StepTimer], bool] | None = None,
    ) -> tuple[np.ndarray, StepTimer]:
        """Returns the mean loss of each pass over the batches, from the same weights."""
        limit = self._limit()
        self._restore()
        history, timer = self._loops[plan.precision].try_out(
            plan,
            self._data.repeat(passes),
            step_count=self._step_count,
            epochs=passes,
            stop_when=stop_when or (lambda timer: time.perf_counter() > limit),
        )
        return np.array(history.history["loss"]), timer

    def _curve_difference(self, plan: TrainingPlan) -> tuple[float, int]:
        """Returns by how much the loss curve differs at most, and steps of the last full pass.

        The steps are fewer than wanted if time ran out.
        """
        if self._reference_curve is None:
            curve, timer = self._losses(self._reference, passes=_PASSES)
            if timer.step_count < _PASSES * self._step_count:
                return 0.0, 0
            self._reference_curve = curve
        curve, timer = self._losses(plan, passes=_PASSES)
        if timer.step_count < _PASSES * self._step_count:
            return 0.0, 0
        pairs = zip(curve, self._reference_curve, strict=True)
        # Not max(): it would pass NaN over.
        return float(np.max([relative_difference(*pair) for pair in pairs])), self._step_count

    def _read_ahead(self, data: tf.data.Dataset) -> list[Any]:
        per_call = self._loops[None].users_steps_per_call
        wanted = max(self._fewest, _STEPS // per_call * per_call)  # whole calls of plain fit
        limit = self._limit()
        batches, held_bytes = [], 0
        for batch in data.take(wanted):
            batches.append(batch)
            held_bytes += breakdown.tensor_bytes(batch)
            enough = held_bytes > _MAX_BYTES or time.perf_counter() > limit
            if enough and len(batches) >= self._fewest and len(batches) % per_call == 0:
                break
        return batches

    def _from_memory(self, batches: list[Any]) -> tf.data.Dataset:
        """Returns a dataset of the batches with the specs of the user's own."""
        data = tf.data.Dataset.from_generator(
            lambda: iter(batches), output_signature=self._spec
        )
        return datasets.without_autotune(data.cache())


def in_one_line(error: Exception) -> str:
    """Returns the kind of the error and the line of its message that tells most."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and lines[0].startswith("in user code"):  # AutoGraph's traceback; the cause is last
        return lines[-1]
    return ": ".join([type(error).__name__, *lines[:1]])


def relative_difference(value: float, reference: float) -> float:
    """Returns the difference of two losses over the reference, which may be zero."""
    return abs(value - reference) / max(abs(reference), 1e-12)
