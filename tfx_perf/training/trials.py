"""Chooses a plan by short trials on the user's own model and data.

Each plan first trains a few steps from the same weights on the same batches: it must
reach plain `fit`'s loss. Then all that did are timed in interleaved blocks (A B C A B C),
and the fastest wins if the whole interval of its speed-up lies above 1 + margin. The
model's and optimizer's variables are put back afterwards.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.config import CompilationConfig, TrainingConfig
from tfx_perf.interception import FitCall
from tfx_perf.memory import breakdown
from tfx_perf.training.contender import Contender
from tfx_perf.training.loop import Loop
from tfx_perf.training.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.record import TrialRecord
from tfx_perf.training.timer import StepTimer
from tfx_perf.training.turns import Schedule

# Steps of a check, calls of plain fit at the least, and bytes of batches kept for it.
_CHECK_STEPS, _MIN_CALLS, _CHECK_BYTES = 20, 3, 2**30
_MIN_ROUNDS, _MAX_ROUNDS = 5, 12
# A plan this much slower than plain fit in its check cannot win; timing it would be waste.
_HOPELESS = 3.0
# The share of the remaining budget that the check of one plan may take.
_CHECK_SHARE = 0.25
# In a call that takes this long, the work done in Python (about 1 ms) no longer counts.
_LONG_CALL_SECONDS = 0.1

Stop = Callable[[StepTimer], bool]


@dataclasses.dataclass(frozen=True)
class TrialResult:
    """What the trials found.

    Attributes:
        plan: the plan to train with.
        reason: why, in one sentence.
        records: every plan that was tried.
        input_wait_ratio: share of the plan's step that disappears when one batch is
            repeated from memory; None if it was not measured.
    """

    plan: TrainingPlan
    reason: str
    records: tuple[TrialRecord, ...] = ()
    input_wait_ratio: float | None = None


class Trials:
    """The trials for one `fit`."""

    def __init__(
        self,
        call: FitCall,
        loop: Loop,
        *,
        training: TrainingConfig,
        compilation: CompilationConfig,
    ) -> None:
        """Prepares trials.

        Args:
            call: the user's `fit`, not yet run; its `x` is a `tf.data.Dataset`.
            loop: the loop that the plan will be used with; it keeps what is compiled here.
            training: budget, candidates and tolerances.
            compilation: whether XLA may be tried.
        """
        self._model = call.model
        self._loop = loop
        self._config = training
        self._xla = compilation.enabled
        self._data = _without_autotune(call.arguments["x"].repeat())
        self._deadline = 0.0
        self._failures: list[TrialRecord] = []
        self._input_wait: float | None = None

    def run(self) -> TrialResult:
        """Runs the trials within the budget and restores the model."""
        self._deadline = time.perf_counter() + self._config.trial_budget_seconds
        batches = self._read_ahead()
        line, model = self._loop.line, self._model
        line.build(model, batches[0])
        variables = line.state(model)
        before = [variable.numpy() for variable in variables]

        def restore() -> None:
            for variable, value in zip(variables, before, strict=True):
                variable.assign(value)

        try:
            contenders = self._checked(batches, restore)
            if len(contenders) > 1:
                one_batch = self._from_memory(batches[:1]).repeat()
                self._loop.take_turns(self._schedule(contenders, one_batch), self._data)
        finally:
            restore()
            model.reset_metrics()
        return self._judge(contenders)

    def _read_ahead(self) -> list[Any]:
        """Reads the batches of the checks: few if they are large or slow to come."""
        per_call = self._loop.users_steps_per_call
        fewest = _MIN_CALLS * per_call
        wanted = max(fewest, _CHECK_STEPS // per_call * per_call)  # whole calls of plain fit
        limit = self._time_limit()
        batches, held_bytes = [], 0
        for batch in self._data.take(wanted):
            batches.append(batch)
            held_bytes += breakdown.tensor_bytes(batch)
            enough = held_bytes > _CHECK_BYTES or time.perf_counter() > limit
            if enough and len(batches) >= fewest and len(batches) % per_call == 0:
                break
        return batches

    def _from_memory(self, batches: list[Any]) -> tf.data.Dataset:
        """Returns a dataset of the batches with the specs of the user's own."""
        data = tf.data.Dataset.from_generator(
            lambda: iter(batches), output_signature=self._data.element_spec
        )
        return _without_autotune(data.cache())

    def _time_limit(self) -> float:
        now = time.perf_counter()
        return now + max(0.0, self._deadline - now) * _CHECK_SHARE

    def _checked(self, batches: list[Any], restore: Callable[[], None]) -> list[Contender]:
        """Returns plain fit and the plans that reach its loss on the same batches.

        Plain fit runs twice: by how much its loss differs from itself (dropout) is added
        to what a plan's may differ. Plans that share a traced function share a check.
        """
        data, step_count = self._from_memory(batches), len(batches)

        def check(plan: TrainingPlan, stop_when: Stop) -> tuple[Contender, int]:
            restore()
            history, timer = self._loop.try_out(
                plan, data, step_count=step_count, stop_when=stop_when
            )
            seconds = timer.steady_seconds() or [timer.first_call_seconds]
            step_seconds = float(np.median(seconds))
            return (
                Contender(
                    plan=plan,
                    loss=float(history.history["loss"][-1]),
                    compile_seconds=max(0.0, timer.first_call_seconds - step_seconds),
                    step_seconds=step_seconds,
                ),
                timer.step_count,
            )

        limit = self._time_limit()
        first, step_count = check(PLAIN_FIT, lambda timer: time.perf_counter() > limit)
        if step_count < _MIN_CALLS * self._loop.users_steps_per_call:
            return []
        reference, _ = check(PLAIN_FIT, lambda timer: False)
        reference.compile_seconds = first.compile_seconds
        allowed = self._config.loss_tolerance + 2 * _difference(first.loss, reference.loss)
        hopeless = _HOPELESS * reference.step_seconds
        contenders = [reference]
        for plans in self._families(reference.step_seconds):
            # XLA goes step by step, because it may be so slow that it must be stopped.
            per_call = 1 if plans[0].xla else min(plans[0].steps_per_call, step_count // 2)
            limit = self._time_limit()
            try:
                found, steps = check(
                    plans[0].model_copy(update={"steps_per_call": per_call}),
                    lambda timer, limit=limit: time.perf_counter() > limit
                    or timer.settled_seconds() > hopeless,
                )
            except Exception as error:  # noqa: BLE001 - whatever a plan raises, fit goes on
                self._fail(plans, reason=in_one_line(error))
                continue
            difference = _difference(found.loss, reference.loss)
            if found.step_seconds > hopeless:
                ratio = found.step_seconds / reference.step_seconds
                self._fail(
                    plans,
                    status="slower",
                    reason=f"{ratio:.0f} times plain fit's step time in the check",
                    compile_time_seconds=found.compile_seconds,
                )
            elif steps < step_count:
                self._fail(plans, reason=f"{step_count} steps took too long for the budget")
            elif not difference <= allowed:  # also if it is NaN
                self._fail(
                    plans,
                    status="different",
                    reason=f"loss differs by {difference:.1%} from plain fit's, "
                    f"allowed {allowed:.1%}",
                    loss=found.loss,
                )
            else:
                contenders += [dataclasses.replace(found, plan=plan, blocks=[]) for plan in plans]
        return contenders

    def _families(self, step_seconds: float) -> list[list[TrainingPlan]]:
        """Returns what to try against plain fit; the plans of a family share a function."""
        longest = min(_longest_call(step_seconds), self._loop.train_length)
        sizes = {min(size, longest) for size in self._config.steps_per_call}
        families = [[TrainingPlan(steps_per_call=size) for size in sorted(sizes) if size > 1]]
        if self._xla:
            xla = [TrainingPlan(steps_per_call=max(sizes), xla=True)]
            if self._loop.line.overrides_train_step(self._model):
                self._fail(xla, reason="the model has its own train_step, which cannot be split")
            elif self._loop.line.scales_loss(self._model):
                self._fail(xla, reason="the optimizer scales the loss, which is not supported yet")
            else:
                families.append(xla)
        return [plans for plans in families if plans]

    def _fail(self, plans: list[TrainingPlan], **fields: Any) -> None:
        fields = {"status": "failed", **fields}
        self._failures += [TrialRecord(plan=plan, **fields) for plan in plans]

    def _schedule(self, contenders: list[Contender], one_batch: tf.data.Dataset) -> Schedule:
        """Fills the contenders' blocks until decided, then measures the wait for input."""
        # The checks read from memory; on the real data a step may take longer.
        self._shorten(contenders, step_seconds=(yield self._loop.turn(PLAIN_FIT)))
        turns = [self._loop.turn(contender.plan) for contender in contenders]
        for round_index in range(_MAX_ROUNDS):
            for contender, turn in zip(contenders, turns, strict=True):
                contender.blocks.append((yield turn))
            if time.perf_counter() > self._deadline:
                return
            if round_index + 1 >= _MIN_ROUNDS and self._fastest(contenders):
                break
        # Not in turns with the real data: their buffers would fill up in the meantime.
        winner = self._fastest(contenders) or contenders[0]
        iterator = self._loop.iterator_over(one_batch)
        repeated = []
        for _ in range(_MIN_ROUNDS):
            repeated.append((yield self._loop.turn(winner.plan, iterator=iterator)))
        self._input_wait = max(0.0, 1.0 - float(np.median(repeated) / np.median(winner.blocks)))

    @staticmethod
    def _shorten(contenders: list[Contender], *, step_seconds: float) -> None:
        """Limits the length of the contenders' calls and drops those that become equal."""
        longest = _longest_call(step_seconds)
        reference, *others = contenders
        by_plan = {}
        for other in others:
            steps = min(other.plan.steps_per_call, longest)
            plan = other.plan.model_copy(update={"steps_per_call": steps})
            by_plan.setdefault(plan, dataclasses.replace(other, plan=plan))
        contenders[:] = [reference, *by_plan.values()]

    def _fastest(self, contenders: list[Contender]) -> Contender | None:
        """Returns the plan with the largest speed-up, None unless it surely beats plain fit."""
        reference, *others = contenders
        if len(reference.blocks) < _MIN_ROUNDS:
            return None
        best = min(others, key=lambda contender: np.median(contender.blocks))
        return best if best.speedup_over(reference).low > 1.0 + self._config.margin else None

    def _judge(self, contenders: list[Contender]) -> TrialResult:
        if not contenders:
            return TrialResult(PLAIN_FIT, "the budget is too small to try anything")
        reference, *others = contenders
        winner = self._fastest(contenders) if others else None
        if winner:
            reason = "what plans must beat"
        elif others and len(reference.blocks) < _MIN_ROUNDS:
            reason = "the budget ended before a plan had surely beaten it"
        else:
            reason = "nothing beat it"
        first = reference.reference_record(reason)
        records = [other.record(reference, chosen=other is winner) for other in others]
        chosen = next((record for record in records if record.status == "chosen"), first)
        return TrialResult(
            plan=chosen.plan,
            reason=chosen.reason,
            records=(first, *records, *self._failures),
            input_wait_ratio=self._input_wait,
        )


def in_one_line(error: Exception) -> str:
    """Returns the kind of the error and the line of its message that tells most."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and lines[0].startswith("in user code"):  # AutoGraph's traceback; the cause is last
        return lines[-1]
    return ": ".join([type(error).__name__, *lines[:1]])


def _longest_call(step_seconds: float) -> int:
    return max(1, int(_LONG_CALL_SECONDS / step_seconds))


def _without_autotune(data: tf.data.Dataset) -> tf.data.Dataset:
    """Pins AUTOTUNE to its start values; its thread can delay the end of a fit by a minute."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return data.with_options(options)


def _difference(value: float, reference: float) -> float:
    """Returns the relative difference."""
    return abs(value - reference) / max(abs(reference), 1e-12)
