"""TrainingSession: carries out the user's `fit` with the best measured plan."""

import dataclasses
import logging
import os
import time
from typing import Any

from tfx_perf import config
from tfx_perf.hardware import energy
from tfx_perf.interception import FitCall
from tfx_perf.training import collector, measuring, memory_watch, meters
from tfx_perf.training.eligibility import recovery_obstacle
from tfx_perf.training.loop import Loop
from tfx_perf.training.monitoring.live_training import LiveTraining
from tfx_perf.training.monitoring.serving import serving
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.record import TrainingRecord
from tfx_perf.training.recovery.checkpoint_store import CheckpointStore
from tfx_perf.training.recovery.recovery import Outcome, Recovery
from tfx_perf.training.speed_watch import Promise
from tfx_perf.training.trials import choosing
from tfx_perf.training.trials.choice import PlanChoice, plain

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
            settings: the sections `training`, `compilation` and `monitoring`.
            given: the choice for the `fit` that it names; any other is plain. None chooses by
                trials in this process, where a crash is the training's end.
        """
        self._settings = settings
        self._given = given
        self._records: list[TrainingRecord] = []
        self._folders: list[str] = []
        self._began: float | None = time.perf_counter()

    @property
    def record(self) -> TrainingRecord | None:
        """The `fit` with the most steps; None before the first."""
        return max(self._records, key=lambda record: record.train_step_count, default=None)

    def observe(self, call: FitCall) -> Any:
        """Carries out `call` as it is, timed by a callback; returns Keras' History.

        This is what others are compared with, so that it serves nothing.
        """
        started = time.perf_counter()
        loop = Loop(call)
        meters.reset_peak_memory()
        result = plain("only observed")
        with memory_watch.watching() as memory:
            outcome = Outcome(*loop.observe(), plan=result.plan)
        seconds = {"started": started, "fit_time_seconds": time.perf_counter() - started}
        self._record(call, result, outcome, loop=loop, memory=memory, **seconds)
        return outcome.history

    def fit(self, call: FitCall) -> Any:
        """Carries out `call` and measures it; returns Keras' History."""
        started = time.perf_counter()
        setup_seconds = None if self._began is None else started - self._began
        self._began = None  # a second `fit` has none of its own
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
        live = LiveTraining(call, loop, chosen=result, recovery=recovery, started=started)
        with serving(self._settings.monitoring, live):
            with (
                collector.spared() as live.pauses,
                energy.counted() as used,
                memory_watch.watching() as memory,
            ):
                outcome = self._train(loop, result, recovery=recovery, notes=notes)
            fit_seconds = time.perf_counter() - started  # without the end of the server
        left = loop.speed_watch and loop.speed_watch.note
        if left:  # the next run had better try again
            outcome = dataclasses.replace(outcome, notes=(*outcome.notes, left))
            result = result.model_copy(update={"is_settled": False})
        self._record(
            call,
            result.model_copy(update={"plan": outcome.plan}),
            outcome,
            loop=loop,
            memory=memory,
            started=started,
            fit_time_seconds=fit_seconds,
            setup_time_seconds=setup_seconds,
            garbage_collection_seconds=live.pauses.seconds,
            energy_joules=used.joules,
            energy_gap=used.reason,
        )
        return outcome.history

    def _train(
        self,
        loop: Loop,
        result: PlanChoice,
        *,
        recovery: Recovery | None,
        notes: tuple[str, ...],
    ) -> Outcome:
        promise = self._promise(result)
        if recovery is not None:
            return recovery.fit(result.plan, promise=promise)
        if result.plan.is_plain_fit and not result.trials:
            return Outcome(*loop.observe(), plan=result.plan, notes=notes)
        return Outcome(*loop.fit(result.plan, promise=promise), plan=result.plan, notes=notes)

    def _record(
        self, call: FitCall, result: PlanChoice, outcome: Outcome, **measured: Any
    ) -> None:
        """Adds the record of a training; without one if it cannot be made."""
        try:
            record = measuring.measured(
                call, result, outcome, is_traced=self._given is None, **measured
            )
        except Exception:  # the model is trained; losing it would help nobody
            _LOGGER.warning("The training could not be measured.", exc_info=True)
        else:
            self._records.append(record)

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
            folder = _folder_of(folder, len(self._folders))
            self._folders.append(folder)
        return Recovery(call, loop, settings=settings, folder=folder), ()

    def _choose(self, call: FitCall, loop: Loop) -> PlanChoice:
        """Returns the plan; whatever goes wrong, plain fit trains on."""
        if self._given is None:
            chosen = choosing.by_trials(call, loop, settings=self._settings)
        else:
            chosen = choosing.as_given(call, loop, self._given)
            # Spent once, before the first fit.
            self._given = self._given.model_copy(update={"trial_time_seconds": 0.0})
        return choosing.with_recompute(call, loop, chosen, settings=self._settings)

    def _promise(self, result: PlanChoice) -> Promise | None:
        """Returns what the trials promise of the plan."""
        plain = TrainingPlan(onednn=result.plan.onednn)
        trials = [t for t in result.trials if t.plan == plain and t.step_time]
        if result.plan.is_plain_fit or result.plan.recompute or not trials:
            return None  # plain steps keep all activations, for which there may be no memory
        margin = self._settings.training.margin
        return Promise(step_seconds=trials[0].step_time.value, margin=margin)


def interrupted_plan(checkpoint_folder: str | None) -> TrainingPlan | None:
    """Returns the plan of the training that, most likely, will go on from a checkpoint there.

    Args:
        checkpoint_folder: of the settings; None if there is none.
    """
    if checkpoint_folder is None:
        return None
    found = CheckpointStore(_folder_of(checkpoint_folder, 0)).latest()
    return found and found[1].plan


def _folder_of(checkpoint_folder: str, fit_index: int) -> str:
    return os.path.join(checkpoint_folder, f"fit-{fit_index}")
