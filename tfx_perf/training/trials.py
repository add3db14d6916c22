"""Chooses a plan by short trials on the user's own model and data.

Each plan first trains a few steps from the same weights on the same batches: it must
reach plain `fit`'s loss. Then all that did are timed in interleaved blocks (A B C A B C),
and the fastest wins if the whole interval of its speed-up lies above 1 + margin. The
model's and optimizer's variables are put back afterwards.
"""

import dataclasses
import time
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf import statistics
from tfx_perf.config import CompilationConfig, TrainingConfig
from tfx_perf.interception import FitCall
from tfx_perf.training.loop import Loop
from tfx_perf.training.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.record import TrialRecord
from tfx_perf.training.timer import TooSlowError

_CHECK_STEPS = 20
_BLOCK_SECONDS = 0.3
_MIN_ROUNDS, _MAX_ROUNDS = 5, 12
# Calls of the train function in a block, the first (not counted) included.
_MIN_CALLS, _MAX_CALLS = 4, 400
# A plan this much slower than plain fit in its check cannot win; timing it would be waste.
_HOPELESS = 3.0
# The share of the budget that the check of one plan may take (XLA may compile for long).
_CHECK_SHARE = 0.25


def _relative_difference(value: float, reference: float) -> float:
    return abs(value - reference) / max(abs(reference), 1e-12)


@dataclasses.dataclass
class _Contender:
    plan: TrainingPlan
    loss: float
    compile_seconds: float
    step_seconds: float
    blocks: list[float] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class TrialResult:
    """What the trials found.

    Attributes:
        plan: the plan to train with.
        reason: why, in one sentence.
        records: every plan that was tried.
        input_wait_ratio: share of the plan's step that disappears when one batch is
            repeated from memory.
    """

    plan: TrainingPlan
    reason: str
    records: tuple[TrialRecord, ...]
    input_wait_ratio: float | None


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
        self._call = call
        self._loop = loop
        self._config = training
        self._xla = compilation.enabled
        self._data: tf.data.Dataset = call.arguments["x"]
        self._failures: list[TrialRecord] = []

    def run(self) -> TrialResult:
        """Runs the trials within the budget and restores the model."""
        started = time.perf_counter()
        deadline = started + self._config.trial_budget_seconds
        batches = self._data.take(_CHECK_STEPS).cache()
        line, model = self._loop.line, self._call.model
        line.build(model, next(iter(batches)))
        variables = line.state(model)
        before = [variable.numpy() for variable in variables]

        def restore() -> None:
            for variable, value in zip(variables, before, strict=True):
                variable.assign(value)

        try:
            contenders = self._checked(batches, restore, deadline)
            self._time(contenders, deadline)
            winner, records = self._judge(contenders)
            wait = self._input_wait(winner, batches)
        finally:
            restore()
            model.reset_metrics()
        chosen = next(record for record in records if record.plan == winner.plan)
        return TrialResult(winner.plan, chosen.reason, (*records, *self._failures), wait)

    def _plans(self) -> list[TrainingPlan]:
        plans = [TrainingPlan(steps_per_call=steps) for steps in self._config.steps_per_call]
        line, model = self._loop.line, self._call.model
        if not self._xla:
            return plans
        xla = TrainingPlan(steps_per_call=max(self._config.steps_per_call), xla=True)
        if line.overrides_train_step(model):
            self._fail(xla, "the model has its own train_step, which cannot be split for XLA")
        elif line.scales_loss(model):
            self._fail(xla, "the optimizer scales the loss, which the XLA step does not do yet")
        else:
            plans.append(xla)
        return plans

    def _fail(self, plan: TrainingPlan, reason: str) -> None:
        self._failures.append(TrialRecord(plan=plan, status="failed", reason=reason))

    def _checked(
        self, batches: tf.data.Dataset, restore: Any, deadline: float
    ) -> list[_Contender]:
        """Returns plain fit and the plans that reach its loss on the same batches.

        Plain fit runs twice: by how much its loss differs from itself (dropout) is added
        to what a plan's may differ.
        """
        reference = self._check(PLAIN_FIT, batches, restore, deadline=None)
        again = self._check(PLAIN_FIT, batches, restore, deadline=None)
        own_difference = _relative_difference(again.loss, reference.loss)
        contenders = [dataclasses.replace(again, compile_seconds=reference.compile_seconds)]
        allowed = self._config.loss_tolerance + 2 * own_difference
        for plan in self._plans():
            now = time.perf_counter()
            limit = now + max(0.0, deadline - now) * _CHECK_SHARE
            try:
                contender = self._check(plan, batches, restore, deadline=limit)
            except TooSlowError:
                self._fail(plan, f"{_CHECK_STEPS} steps took more than {limit - now:.0f} s")
                continue
            except Exception as error:  # noqa: BLE001 - whatever a plan raises, fit goes on
                self._fail(plan, f"{type(error).__name__}: {str(error).strip().splitlines()[0]}")
                continue
            difference = _relative_difference(contender.loss, reference.loss)
            if not difference <= allowed:
                reason = f"loss differs by {difference:.1%} from plain fit's, allowed {allowed:.1%}"
                self._failures.append(
                    TrialRecord(plan=plan, status="different", reason=reason, loss=contender.loss)
                )
            elif contender.step_seconds > _HOPELESS * reference.step_seconds:
                ratio = contender.step_seconds / reference.step_seconds
                self._failures.append(
                    TrialRecord(
                        plan=plan,
                        status="slower",
                        reason=f"{ratio:.0f} times plain fit's step in the check",
                        loss=contender.loss,
                        compile_time_seconds=contender.compile_seconds,
                    )
                )
            else:
                contenders.append(contender)
        return contenders

    def _check(
        self, plan: TrainingPlan, batches: tf.data.Dataset, restore: Any, *, deadline: float | None
    ) -> _Contender:
        """Trains on the check's batches from the saved weights.

        At least two calls, so that the second tells the step time without compilation; XLA
        goes step by step, because it may be so slow that the deadline must stop it.
        """
        restore()
        if not plan.is_plain_fit:
            steps = 1 if plan.xla else min(plan.steps_per_call, _CHECK_STEPS // 2)
            plan_in_check = plan.model_copy(update={"steps_per_call": steps})
        else:
            plan_in_check = plan
        history, timer = self._loop.fit(
            plan_in_check, deadline=deadline, **self._short(batches, _CHECK_STEPS)
        )
        step_seconds = float(np.median(timer.steady_seconds()))
        return _Contender(
            plan=plan,
            loss=float(history.history["loss"][-1]),
            compile_seconds=max(0.0, timer.first_call_seconds - step_seconds),
            step_seconds=step_seconds,
        )

    @staticmethod
    def _short(data: tf.data.Dataset, steps: int) -> dict[str, Any]:
        return {
            "x": data,
            "epochs": 1,
            "initial_epoch": 0,
            "steps_per_epoch": steps,
            "validation_data": None,
            "callbacks": None,
            "verbose": 0,
        }

    def _block(self, contender: _Contender, data: tf.data.Dataset) -> float:
        """Returns the median seconds per step of a short run, its first call not counted."""
        per_call = contender.plan.steps_per_call or 1
        wanted = int(_BLOCK_SECONDS / contender.step_seconds / per_call)
        calls = min(max(wanted, _MIN_CALLS), _MAX_CALLS)
        _, timer = self._loop.fit(contender.plan, **self._short(data, calls * per_call))
        return float(np.median(timer.steady_seconds()))

    def _time(self, contenders: list[_Contender], deadline: float) -> None:
        """Fills the contenders' blocks, interleaved, until decided or out of budget."""
        data = self._data.repeat()
        for round_index in range(_MAX_ROUNDS if len(contenders) > 1 else 1):
            for contender in contenders:
                contender.blocks.append(self._block(contender, data))
                contender.step_seconds = float(np.median(contender.blocks))
            if round_index + 1 >= _MIN_ROUNDS and (
                time.perf_counter() > deadline or self._fastest(contenders)
            ):
                break

    def _fastest(self, contenders: list[_Contender]) -> _Contender | None:
        """Returns the plan with the largest speed-up, None unless it surely beats plain fit."""
        best = max(contenders, key=lambda contender: 1 / np.median(contender.blocks))
        speedup = statistics.ratio_interval(contenders[0].blocks, best.blocks)
        return best if speedup.low > 1.0 + self._config.margin else None

    def _judge(self, contenders: list[_Contender]) -> tuple[_Contender, list[TrialRecord]]:
        """Returns the winner, plain fit if none beats it, and a record of each contender."""
        reference = contenders[0]
        winner = self._fastest(contenders) or reference
        records = []
        for contender in contenders:
            speedup = statistics.ratio_interval(reference.blocks, contender.blocks)
            if contender is reference:
                status = "reference"
                reason = "what plans must beat" if winner is not reference else "nothing beat it"
            else:
                status = "chosen" if contender is winner else "slower"
                reason = (
                    f"{speedup.value:.2f} times plain fit's speed "
                    f"(95 % interval {speedup.low:.2f} to {speedup.high:.2f})"
                )
            records.append(
                TrialRecord(
                    plan=contender.plan,
                    status=status,
                    reason=reason,
                    loss=contender.loss,
                    # Plans that differ in steps per call share what the first of them traced.
                    compile_time_seconds=max(
                        other.compile_seconds
                        for other in contenders
                        if (other.plan.is_plain_fit, other.plan.xla)
                        == (contender.plan.is_plain_fit, contender.plan.xla)
                    ),
                    step_time=statistics.median_interval(contender.blocks),
                    speedup=None if contender is reference else speedup,
                )
            )
        return winner, records

    def _input_wait(self, winner: _Contender, batches: tf.data.Dataset) -> float:
        """Returns 1 - (step time on one batch repeated from memory) / (step time on the data)."""
        one_batch = batches.take(1).cache().repeat()
        real, repeated = [], []
        for _ in range(_MIN_ROUNDS):
            real.append(self._block(winner, self._data.repeat()))
            repeated.append(self._block(winner, one_batch))
        return max(0.0, 1.0 - statistics.ratio_interval(repeated, real).value)
