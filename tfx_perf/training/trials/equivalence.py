"""EquivalenceCheck: does a plan reach plain `fit`'s state from the same weights and batches?"""

import functools
import time
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from tfx_perf import errors
from tfx_perf.training.keras_api.variables import inner
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.team import Team
from tfx_perf.training.trials.choice import TrialRecord
from tfx_perf.training.trials.contender import Contender
from tfx_perf.training.trials.short_trainings import Logs, ShortTraining, ShortTrainings
from tfx_perf.training.trials.starting_point import StartingPoint, variables_of
from tfx_perf.training.trials.variant import BuiltUnder, Variant
from tfx_perf.training.trials.yardstick import TrainedState, Yardstick, is_loss

# A narrower type may train the same for a while; this often over the same batches.
_PASSES = 5
# A plan this much slower than plain fit in its check cannot win; timing it would be waste.
_HOPELESS = 3.0
_RANDOM = "random: other draws, of which only the statistics could be compared"


class EquivalenceCheck:
    """Trains a few steps with each plan, all from the same weights on the same batches.

    The reference, as a rule plain `fit`, runs once from there, and once from weights that are off
    by one rounding: see `Yardstick`. Where that leads far away, it runs a third time, from the
    same weights, to see whether it is random in a way that nobody can repeat.

    A plan in another precision trains another way on purpose: of it, the loss is compared.

    Attributes:
        ran_out_of_time: whether a check was stopped because its time was up.
    """

    def __init__(
        self,
        variants: Mapping[BuiltUnder, Variant],
        reference: TrainingPlan,
        data: tf.data.Dataset,
        *,
        start: StartingPoint,
        limit: Callable[[], float],
        loss_tolerance: float,
        team: Team,
    ) -> None:
        """Reads the batches: few if they are large or slow to come.

        Args:
            variants: what the plans train, by their precision.
            reference: what they are held to.
            data: endless.
            start: where all checks begin.
            limit: returns when a check that begins now must end, on `time.perf_counter`'s clock.
            loss_tolerance: relative difference of the loss that is allowed where it alone can be
                compared.
            team: see `ShortTrainings`.
        """
        self._variants, self._team = variants, team
        self._reference_curve: np.ndarray | None = None
        self._reference = reference
        self.ran_out_of_time = False
        self._start = start
        self._limit = limit
        self._loss_tolerance = loss_tolerance
        self._allowed = self._hopeless_seconds = 0.0
        self._reference_loss: float | None = None
        self._expected: TrainedState  # the reference's; from `first_look` on
        self._rounding: Yardstick  # from `reference` on
        self._chance: Yardstick | None = None
        self._trainings = ShortTrainings(variants, data, start=start, limit=limit, team=team)

    @property
    def one_batch(self) -> tf.data.Dataset:
        """One batch of the data from memory, for ever."""
        return self._trainings.one_batch

    def first_look(self) -> Contender:
        """Returns what is seen of the reference; of no use if `ran_out_of_time` even for it."""
        first = self._trainings.train(self._reference)
        if first.step_count < self._trainings.fewest:
            self.ran_out_of_time = True
            return first.contender
        self._trainings.step_count = first.step_count  # all others have as many
        self._expected = self._seen(first.logs).kept()
        return first.contender

    def reference(self, first: Contender) -> Contender:
        """Returns what the others are held to; must come before `check`.

        Args:
            first: what `first_look` returned.
        """
        self._rounding = self._yardstick()
        rounded = self._train_reference(self._start.restore_rounded)
        reference = rounded.contender
        self._start.take_rounding_away()
        self._rounding.allow(self._seen(rounded.logs))
        if self._team.decides(self._rounding.is_large):
            again = self._seen(self._train_reference(self._start.restore).logs)
            if not self._team.decides(self._rounding.repeats(again)):
                self._rounding.allow(again, by_chance=True)
        reference.compile_seconds = first.compile_seconds
        if first.loss is not None and reference.loss is not None:
            spread = relative_difference(reference.loss, first.loss)
            self._allowed = self._loss_tolerance + 2 * spread
        self._hopeless_seconds = _HOPELESS * reference.step_seconds
        self._reference_loss = first.loss
        return reference

    def check(self, plan: TrainingPlan) -> Contender | TrialRecord:
        """Returns the plan if it is worth timing, else the record of why it is not.

        Raises:
            TeamError: the others do not come to the end of it, where several workers train.
        """
        try:
            found = self._check(plan)
        except errors.GIVEN_UP as error:  # whatever a plan raises, fit goes on
            self._team.end_if_alone(error)
            reason = errors.in_one_line(error)
            with self._team.soon(reason):
                self._team.all(False)
            return TrialRecord(plan=plan, status="failed", reason=reason)
        if not self._team.all(isinstance(found, Contender)) and isinstance(found, Contender):
            found = TrialRecord(plan=plan, status="failed", reason="another worker objects")
        return found

    def _check(self, plan: TrainingPlan) -> Contender | TrialRecord:
        # Step by step, so that it can be stopped.
        may_be_slow = any(each.may_be_slow for each in plan.optimizations)
        half = self._trainings.step_count // 2
        per_call = 1 if may_be_slow else min(plan.steps_per_call, half)
        limit, hopeless_seconds = self._limit(), self._hopeless_seconds
        tried = plan.model_copy(update={"steps_per_call": per_call})
        train = functools.partial(
            self._trainings.train,
            tried,
            stop_when=lambda timer: time.perf_counter() > limit
            or timer.settled_seconds() > hopeless_seconds,
        )
        ended = train()
        if ended.contender.step_seconds > hopeless_seconds:  # few steps: it may have been chance
            compile_seconds = ended.contender.compile_seconds
            ended = train()
            ended.contender.compile_seconds = compile_seconds
        found, step_count = ended.contender, ended.step_count
        if found.step_seconds > hopeless_seconds:
            ratio = found.step_seconds / hopeless_seconds * _HOPELESS
            return TrialRecord(
                plan=plan,
                status="slower",
                reason=f"{ratio:.0f} times the step time of {self._reference} in the check",
                compile_time_seconds=found.compile_seconds,
            )
        difference = None
        compares_loss = any(each.changes_numbers for each in plan.optimizations)
        if compares_loss and step_count == self._trainings.step_count:
            if found.loss is None or self._reference_loss is None:
                why = "another precision needs a loss in the logs, to be compared"
                return TrialRecord(plan=plan, status="failed", reason=why)
            difference = relative_difference(found.loss, self._reference_loss)
            if difference <= self._allowed:
                difference = self._curve_difference(tried)
                step_count = 0 if difference is None else step_count
        if step_count < self._trainings.step_count:
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
        reason: str | None = None
        note: str | None = None
        if difference is None:
            reason, note = self._compared(plan, ended.logs)
        elif not difference <= self._allowed:  # also if it is NaN
            reason = (
                f"loss differs by {difference:.1%} from that of {self._reference}, "
                f"allowed {self._allowed:.1%}"
            )
        if reason is not None:
            return TrialRecord(
                plan=plan,
                status="different",
                reason=reason,
                loss=found.loss,
                compile_time_seconds=found.compile_seconds,
            )
        found.note = note
        return found

    def _compared(self, plan: TrainingPlan, logs: Logs) -> tuple[str | None, str]:
        """Returns why a plan's state is another one, and what is to be said if it is not."""
        seen, tolerance = self._seen(logs), self._loss_tolerance
        yardstick = self._rounding
        found = yardstick.exceeded(seen, loss_tolerance=tolerance)
        # XLA makes other numbers of the same seeds, so that masks cannot agree.
        other_masks = plan.uses_xla != bool(self._variants[None].call.model.jit_compile)
        may_be_masks = other_masks and self._start.has_generators and not yardstick.is_random
        if may_be_masks and self._team.decides(bool(found)):
            seen = seen.kept()
            yardstick = self._by_chance()
            found = yardstick.exceeded(seen, loss_tolerance=tolerance)
        return str(found) if found else None, _RANDOM if yardstick.is_random else ""

    def _by_chance(self) -> Yardstick:
        """Returns what two draws of the model's random numbers differ by."""
        if self._chance is None:
            self._chance = self._yardstick()
            for seed in (1, 2):
                redraw = functools.partial(self._start.restore_redrawn, seed)
                seen = self._seen(self._train_reference(redraw).logs)
                self._chance.allow(seen, by_chance=True)
        return self._chance

    def _yardstick(self) -> Yardstick:
        counting = {
            id(inner(variable))
            for metric in self._variants[None].call.model.metrics
            if not is_loss(metric.name)
            for variable in metric.variables
        }
        variables = variables_of(self._variants[None])
        metrics = [name for name, variable in variables.items() if id(variable) in counting]
        return Yardstick(self._expected, metrics=metrics, examples=self._trainings.example_count)

    def _seen(self, logs: Logs) -> TrainedState:
        """Returns the state after the training that has just ended; it is not copied."""
        return TrainedState(variables_of(self._variants[None]), logs)

    def _train_reference(self, restore: Callable[[], None]) -> ShortTraining:
        """Runs the reference to the end, from where `restore` leads."""
        return self._trainings.train(
            self._reference, restore=restore, stop_when=lambda timer: False
        )

    def _curve_difference(self, plan: TrainingPlan) -> float | None:
        """Returns by how much the loss curve differs at most; None if time ran out."""
        if self._reference_curve is None:
            self._reference_curve = self._trainings.losses(self._reference, passes=_PASSES)
            if self._reference_curve is None:
                return None
        curve = self._trainings.losses(plan, passes=_PASSES)
        if curve is None:
            return None
        pairs = zip(curve, self._reference_curve, strict=True)
        # Not max(): it would pass NaN over.
        return float(np.max([relative_difference(*pair) for pair in pairs]))


def relative_difference(value: float, reference: float) -> float:
    """Returns the difference of two losses over the reference, which may be zero."""
    return abs(value - reference) / max(abs(reference), 1e-12)
