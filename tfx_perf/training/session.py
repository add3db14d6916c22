"""TrainingSession: carries out the user's `fit` with the best measured plan."""

import logging
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf import config, statistics
from tfx_perf.hardware import devices
from tfx_perf.interception import FitCall
from tfx_perf.memory import batches
from tfx_perf.training import choosing, meters
from tfx_perf.training.checkpoint_store import CheckpointStore
from tfx_perf.training.choice import PlanChoice
from tfx_perf.training.eligibility import recovery_obstacle
from tfx_perf.training.loop import Loop
from tfx_perf.training.oom_guard import OomGuard
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.record import TrainingRecord
from tfx_perf.training.recovery import Outcome, Recovery
from tfx_perf.training.timer import StepTimer, percentile
from tfx_perf.training.trial_record import TrialRecord

_PLOTTED_STEPS = 400

_LOGGER = logging.getLogger(__name__)


class TrainingSession:
    """The handler to give to `interception.intercepting_fit`.

    Example:
        >>> session = TrainingSession(PerfConfig())
        >>> with intercepting_fit(session.fit):
        ...     run_fn(fn_args)
        >>> session.record.figures()["examples_per_second"]
    """

    def __init__(
        self, settings: config.PerfConfig, *, given: PlanChoice | None = None
    ) -> None:
        """Starts a session.

        Args:
            settings: the sections `training` and `compilation`.
            given: the choice for the `fit` that it names; any other is plain. None chooses by
                trials in this process, where a crash is the training's end.
        """
        self._settings = settings
        self._given = given
        self._records: list[TrainingRecord] = []
        self._folders: list[str] = []

    @property
    def record(self) -> TrainingRecord | None:
        """The `fit` with the most steps; None before the first."""
        return max(self._records, key=lambda record: record.train_step_count, default=None)

    def fit(self, call: FitCall) -> Any:
        """Carries out `call` and measures it; returns Keras' History."""
        started = time.perf_counter()
        loop = Loop(call)
        recovery, notes = self._recovery(call, loop)
        if recovery is not None and recovery.plan is not None:
            reason = f"it went on from step {recovery.step} of a training that was interrupted"
            result = PlanChoice(plan=recovery.plan, plan_reason=reason)
        else:
            result = self._choose(call, loop)
        if self._given is not None:  # the trials count, though they were before
            started -= result.trial_time_seconds
        meters.reset_peak_memory()
        if recovery is not None:
            outcome = recovery.fit(result.plan)
        elif result.plan.is_plain_fit and not result.trials:
            outcome = Outcome(*loop.observe(), plan=result.plan, notes=notes)
        else:
            outcome = Outcome(*loop.fit(result.plan), plan=result.plan, notes=notes)
        fit_seconds = time.perf_counter() - started
        try:
            record = self._measured(
                call,
                result.model_copy(update={"plan": outcome.plan}),
                outcome,
                oom_guard=loop.oom_guard,
                started=started,
                fit_time_seconds=fit_seconds,
            )
        except Exception:  # the model is trained; losing it would help nobody
            _LOGGER.warning("The training could not be measured.", exc_info=True)
        else:
            self._records.append(record)
        return outcome.history

    def close(self) -> None:
        """Removes the checkpoints, once what was trained is safe: another run begins anew."""
        for folder in self._folders:
            CheckpointStore(folder).clear()

    def _recovery(self, call: FitCall, loop: Loop) -> tuple[Recovery | None, tuple[str, ...]]:
        """Returns what guards the training, None if nothing can, and notes for the record."""
        settings = self._settings.training
        folder = settings.checkpoint_folder
        if not (settings.checkpoint_steps or settings.checkpoint_seconds):
            folder = None
        reason = recovery_obstacle(call, loop)
        if reason:
            return None, (f"no checkpoints: {reason}",) if folder else ()
        if folder:
            folder = os.path.join(folder, f"fit-{len(self._folders)}")
            self._folders.append(folder)
        return Recovery(call, loop, settings=settings, folder=folder), ()

    def _choose(self, call: FitCall, loop: Loop) -> PlanChoice:
        """Returns the plan; whatever goes wrong, plain fit trains on."""
        if self._given is None:
            return choosing.by_trials(call, loop, settings=self._settings)
        chosen = choosing.as_given(call, loop, self._given)
        # Spent once, before the first fit.
        self._given = self._given.model_copy(update={"trial_time_seconds": 0.0})
        return chosen

    def _measured(
        self,
        call: FitCall,
        result: PlanChoice,
        outcome: Outcome,
        *,
        oom_guard: OomGuard | None,
        **seconds: float,
    ) -> TrainingRecord:
        timer, history = outcome.timer, outcome.history
        # Before anything else of ours takes memory.
        peak_memory_bytes, peak_rss_bytes = meters.peak_memory_bytes(), meters.peak_rss_bytes()
        steady = timer.steady_seconds()
        batch = batches.peek(call)
        flops = meters.count_flops(call.model, batch)
        series = timer.series()
        stride = max(1, len(series) // _PLOTTED_STEPS)
        started = seconds.pop("started")
        parameters = sum(int(tf.size(weight)) for weight in call.model.trainable_weights)
        batch_size = None if batch is None else batches.batch_size_of(batch)
        return TrainingRecord(
            **dict(result),
            jit_compile=bool(getattr(call.model, "jit_compile", False)),
            environment={
                **devices.describe(),
                "strategy": type(call.model.distribute_strategy).__name__,
                "global_batch_size": str(batch_size),
                "parameter_count": str(parameters),
                "flops_per_step": str(flops.per_step),
            },
            step_time=statistics.median_interval(steady) if steady else None,
            mean_step_time_seconds=float(np.mean(steady)) if steady else None,
            step_time_p90_seconds=percentile(steady, 90),
            step_times=tuple(series[::stride]),
            global_batch_size=batch_size,
            parameter_count=parameters,
            train_step_count=timer.step_count,
            time_to_first_step_seconds=(
                timer.first_call_end - started if timer.first_call_end else None
            ),
            compile_time_seconds=_compile_seconds(
                result.trials if self._given is None else (), result.plan, timer
            ),
            peak_memory_bytes=peak_memory_bytes,
            peak_rss_bytes=peak_rss_bytes,
            flops_per_step=flops.per_step,
            peak_flops_per_second=flops.peak_per_second,
            peak_source=flops.peak_source,
            losses={
                name: tuple(map(float, values))
                for name, values in history.history.items()
                if name.endswith("loss")
            },
            notes=(*outcome.notes, *filter(None, [flops.note])),
            oom_count=oom_guard.oom_count if oom_guard else 0,
            micro_batches=oom_guard.micro_batches if oom_guard else 1,
            resumed_step=outcome.resumed_step,
            checkpoint_time_seconds=outcome.checkpoint_time_seconds,
            **seconds,
        )


def _compile_seconds(
    trials: Sequence[TrialRecord], plan: TrainingPlan, timer: StepTimer
) -> float:
    """Returns what tracing and compiling the used functions cost, in trials here or in fit."""
    for record in trials:
        if record.plan == plan and record.compile_time_seconds is not None:
            return record.compile_time_seconds
    steady = timer.steady_seconds()
    ordinary = timer.first_call_steps * (percentile(steady, 50) or 0.0)
    return max(0.0, timer.first_call_seconds - ordinary)
