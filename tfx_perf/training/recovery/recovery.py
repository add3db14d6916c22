"""Recovery: trains through kills and blow-ups."""

import dataclasses
import logging
import pathlib
import tempfile
from typing import Any

import tensorflow as tf

from tfx_perf import errors, fingerprint
from tfx_perf.config import TrainingConfig
from tfx_perf.interception import FitCall
from tfx_perf.training import eligibility
from tfx_perf.training.fit_arguments import callback_list
from tfx_perf.training.loop import Loop
from tfx_perf.training.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.recovery import training_fingerprint
from tfx_perf.training.recovery.blow_up import BlowUp, Examination
from tfx_perf.training.recovery.callback_state import CallbackState
from tfx_perf.training.recovery.checkpoint import Checkpoint
from tfx_perf.training.recovery.checkpoint_store import CheckpointStore
from tfx_perf.training.recovery.guard import Guard
from tfx_perf.training.recovery.task import Task
from tfx_perf.training.speed_watch import Promise
from tfx_perf.training.timer import StepTimer

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a training ended.

    Attributes:
        history: Keras' History.
        timer: watched the steps; those before a resumption or rollback are not in it.
        plan: the one that was used in the end.
        notes: what happened on the way, in sentences.
        resumed_step: the step that the training went on from after another process had ended;
            None if it began here.
        checkpoint_time_seconds: what saving took.
        oom_count: steps that ran out of memory before the last rollback, that one included.
    """

    history: Any
    timer: StepTimer
    plan: TrainingPlan
    notes: tuple[str, ...] = ()
    resumed_step: int | None = None
    checkpoint_time_seconds: float = 0.0
    oom_count: int = 0


class Recovery:
    """One `fit` that goes on after the end of its process, and back after a blow-up.

    Attributes:
        oom_count: steps that ran out of memory before the last rollback, that one included.
    """

    def __init__(
        self, call: FitCall, loop: Loop, *, settings: TrainingConfig, folder: str | None
    ) -> None:
        """Looks for a checkpoint of this `fit`.

        Args:
            call: a `fit` that `eligibility.recovery_obstacle` does not object to.
            loop: the loop that runs it.
            settings: when to save and what to watch.
            folder: where the checkpoints go; None keeps only the start of the training, for
                as long as it lasts.
        """
        self._call = call
        self._loop = loop
        self._settings = settings
        self._fingerprint = training_fingerprint.of(call, loop)
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="tfx_perf-")
        self._store = CheckpointStore(folder or self._temporary.name)
        self._resume = self._find() if folder else None
        self.oom_count = 0

    @property
    def plan(self) -> TrainingPlan | None:
        """The plan of the training to go on with; None if there is none."""
        return self._resume[1].plan if self._resume else None

    @property
    def step(self) -> int | None:
        """The step to go on from; None if there is no training to go on with."""
        return self._resume[1].step if self._resume else None

    def fit(self, plan: TrainingPlan, *, promise: Promise | None = None) -> Outcome:
        """Runs `fit`.

        Args:
            plan: how to run the steps.
            promise: what the plan must keep; None if nothing is known.

        Raises:
            UserError: the loss was NaN or Inf or above its bound, also after a rollback to the
                last good state with everything off that may cause it.
        """
        try:
            return self._fit(plan, promise)
        except (BlowUp, errors.UserError):
            raise
        except Exception:
            self._tell_of_checkpoint()
            raise
        finally:
            if self._temporary:
                self._temporary.cleanup()

    def _fit(self, plan: TrainingPlan, promise: Promise | None) -> Outcome:
        resumed_step, notes, seconds = self.step, [], 0.0
        trials_left = self._settings.recovery_max_trials
        while True:
            guard = self._guard(plan, has_trained=trials_left < self._settings.recovery_max_trials)
            try:
                history, timer = self._loop.fit(plan, guard=guard, promise=promise)
            except BlowUp as blow_up:
                self._resume = self._store.latest()
                better = _safer(plan) if self._resume and trials_left else None
                if better is None:
                    raise self._explained(blow_up, plan) from blow_up
                what = str(blow_up)
            except (tf.errors.ResourceExhaustedError, errors.HalfAppliedError) as error:
                self._resume = self._store.latest()
                better = self._smaller(plan, error) if self._resume and trials_left else None
                if better is None:
                    raise
                what = "Out of memory"
                self.oom_count += 1
            else:
                notes += guard.notes
                seconds += guard.saver.seconds
                return Outcome(
                    history, timer, plan, tuple(notes), resumed_step, seconds, self.oom_count
                )
            # Out of the except clauses, so that no traceback keeps tensors alive.
            seconds += guard.saver.seconds
            if self._loop.oom_guard:
                self.oom_count += self._loop.oom_guard.oom_count
                self._loop.oom_guard = None  # counted; the next `fit` has its own
            notes.append(f"{what} with {plan}: went back to step {self.step} and on with {better}.")
            _LOGGER.warning(notes[-1])
            plan, trials_left = better, trials_left - 1

    def _smaller(self, plan: TrainingPlan, error: Exception) -> TrainingPlan | None:
        """Returns the plan that survives where memory ran out; None if there is none."""
        if isinstance(error, errors.HalfAppliedError):
            slices = 2 * self._loop.oom_guard.micro_batches
            return plan.stepwise.model_copy(update={"micro_batches": slices})
        if plan.is_plain_fit and eligibility.obstacle(self._call, self._loop) is None:
            # Keras' own step cannot be run again in slices; ours is, as soon as it must.
            per_call = self._loop.users_steps_per_call
            return plan.model_copy(update={"steps_per_call": per_call})
        return None

    def _guard(self, plan: TrainingPlan, *, has_trained: bool) -> Guard:
        arguments, loop = self._call.arguments, self._loop
        module = loop.line.callbacks
        callbacks = callback_list(arguments["callbacks"])
        task = Task(
            model=self._call.model,
            line=loop.line,
            epochs=arguments["epochs"],
            initial_epoch=arguments["initial_epoch"],
            epoch_length=loop.train_length,
            plan=plan,
            fingerprint=self._fingerprint,
            store=self._store,
            is_lasting=self._temporary is None,
            settings=self._settings,
            watches=not any(isinstance(c, module.TerminateOnNaN) for c in callbacks),
        )
        state = CallbackState(callbacks, module)
        return Guard(task, state, resume=self._resume, has_trained=has_trained)

    def _find(self) -> tuple[pathlib.Path, Checkpoint] | None:
        """Returns the newest checkpoint if it is of this training."""
        found = self._store.latest()
        if found is None:
            return None
        folder, checkpoint = found
        changes = fingerprint.differences(checkpoint.fingerprint, self._fingerprint)
        if changes:
            _LOGGER.warning(
                "The checkpoint %s is of another training and is not used: %s.",
                folder,
                fingerprint.describe(changes),
            )
            self._store.clear()
            return None
        _LOGGER.warning("Training goes on from step %d: %s", checkpoint.step, folder)
        return found

    def _explained(self, blow_up: BlowUp, plan: TrainingPlan) -> errors.UserError:
        """Trains again from the last good state, step by step, to find where it began."""
        where = f"{blow_up.what} in one of the steps {blow_up.first_step} to {blow_up.last_step}"
        remedy = "Lower the learning rate or clip the gradients (clipnorm of the optimizer)."
        if self._resume is not None:
            guard = self._guard(PLAIN_FIT, has_trained=True)
            examination = Examination(
                self._call.model, self._loop.line, steps_done=lambda: guard.step
            )
            try:
                self._loop.fit(PLAIN_FIT, guard=guard, run=examination.run)
            except BlowUp as again:
                where, bad = f"{again.what} in step {again.last_step}", examination.found
                if bad is not None:
                    where = f"NaN or Inf in step {bad.step}, first in {bad}"
                    remedy = bad.remedy
            except Exception:  # the blow-up is what the user has to hear of
                _LOGGER.warning("The blow-up could not be examined.", exc_info=True)
        return errors.UserError(
            f"Expected the training to stay finite. Received: {where} (with {plan}). {remedy}"
        )

    def _tell_of_checkpoint(self) -> None:
        found = self._store.latest() if self._temporary is None else None
        if found:
            _LOGGER.error(
                "The training failed. The next run goes on from step %d: %s",
                found[1].step,
                found[0],
            )


def _safer(plan: TrainingPlan) -> TrainingPlan | None:
    """Returns the plan without what may spoil the numbers; None if nothing is left."""
    if plan.xla_call:
        return plan.stepwise
    if plan.xla:
        return plan.model_copy(update={"xla": False})
    return None if plan.is_plain_fit else plan.plain
