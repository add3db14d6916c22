"""Recovery: continues a training after kills, divergence and plans that fail."""

import gc
import logging
import pathlib
import shutil

import tensorflow as tf

from tfx_perf.config import PerfConfig
from tfx_perf.core import cache_key, errors
from tfx_perf.core.interception import FitCall
from tfx_perf.memory import batches
from tfx_perf.tf_internals import ancestry
from tfx_perf.tf_internals.datasets import row_count
from tfx_perf.training.fit.fit_arguments import callback_list
from tfx_perf.training.fit.timer import TimedFit
from tfx_perf.training.keras_api.base_api import set_trainable
from tfx_perf.training.loop import eligibility
from tfx_perf.training.loop.fit_loop import FitLoop, FitResult
from tfx_perf.training.recovery import shortage, training_fingerprint
from tfx_perf.training.recovery.callback_state import CallbackState
from tfx_perf.training.recovery.checkpoint import Checkpoint, DiskSnapshot, ResumePoint
from tfx_perf.training.recovery.checkpoint_store import MOST_ATTEMPTS, CheckpointStore
from tfx_perf.training.recovery.checkpoint_writer import CheckpointSchedule
from tfx_perf.training.recovery.divergence import DivergenceError, NumericsCheck
from tfx_perf.training.recovery.guard import Guard, Task
from tfx_perf.training.recovery.shortage import Shortages
from tfx_perf.training.recovery.training_state import StateMismatchError, TrainingState, Writers
from tfx_perf.training.speedups.plan import TrainingPlan

# Other trainings in the folder whose checkpoints are kept: the user may revert the code.
_OTHERS_KEPT = 2
# Errors of the data or the machine, which no other plan avoids.
_NOT_THE_PLAN = (
    errors.UserError,
    tf.errors.DataLossError,
    tf.errors.NotFoundError,
    tf.errors.PermissionDeniedError,
    tf.errors.UnauthenticatedError,
    tf.errors.UnavailableError,
    tf.errors.CancelledError,
)

# Most rows assumed in a batch of unknown size: in all, or as a multiple of the first batch's.
_MOST_ROWS, _MOST_OF_FIRST = 2**16, 16

_LOGGER = logging.getLogger(__name__)


class Recovery:
    """One `fit` that resumes after its process has ended, and rolls back after a failure."""

    def __init__(
        self,
        call: FitCall,
        loop: FitLoop,
        *,
        settings: PerfConfig,
        folder: pathlib.Path | None,
        clock: CheckpointSchedule,
    ) -> None:
        """Looks for a checkpoint; without a folder, the last good state is kept in memory only."""
        self._call = call
        self._loop = loop
        self._settings = settings.training
        self._clock = clock
        self._fingerprint = training_fingerprint.of(
            call, keras_api=loop.keras_api, train_length=loop.train_length, settings=settings
        )
        self._sync = loop.sync
        self._writers = Writers.of(call.model)
        own_folder = None if folder is None else folder / self._fingerprint.folder_name
        self._store = None if own_folder is None else CheckpointStore(own_folder, sync=self._sync)
        # Counts attempts; one of several workers cannot abandon its plan alone.
        self._attempts = self._store if self._sync.size == 1 else None
        self._notes: list[str] = []
        self._point: ResumePoint | None = self._find()
        module = loop.keras_api.callbacks
        callbacks = callback_list(call.arguments["callbacks"])
        self._callbacks = CallbackState(callbacks, module)
        self._watches = self._settings.is_watched and not any(
            isinstance(c, module.TerminateOnNaN) for c in callbacks
        )
        state = TrainingState(call.model, loop.keras_api)
        self._bad_at_first = state.bad_weights() if call.model.built else set()
        self._resumed_step = self.step
        self._data: tf.data.Dataset | None = None  # replaces the user's
        self._has_rolled_back = False  # after a rollback in this process
        if self._point is not None and self._point.has_other_writers:
            before = self._point.checkpoint.writers
            self._note(f"{self._writers} resumed a training of {before}; data are redistributed")
        self._save_seconds = 0.0
        self._are_logs_continued = False
        self._shortages = Shortages(own_folder, sync=self._sync, writers=self._writers)
        self.oom_count = self._shortages.count

    @property
    def plan(self) -> TrainingPlan | None:
        """The plan of the training to resume; None without one, or if the replicas changed."""
        if self._point is None or self._point.has_other_writers:
            return None
        return self._point.checkpoint.plan

    @property
    def step(self) -> int | None:
        """The step to resume from; None if there is no training to resume."""
        return self._point.checkpoint.step if self._point else None

    def fit(self, plan: TrainingPlan, *, plain_step_seconds: float | None = None) -> FitResult:
        """Runs `fit`; abandons a plan whose steps take longer than `plain_step_seconds`.

        Raises:
            UserError: the loss was NaN, Inf or above its bound, even after a rollback to the last
                good state without the suspect speedups; or memory ran out, and smaller slices
                would not help or the data cannot be read again.
            ShortOfMemoryError: smaller slices would help if all workers are restarted.
        """
        try:
            return self._fit(plan, plain_step_seconds)
        except Exception as error:
            self._forget_attempts()
            if not isinstance(error, (DivergenceError, errors.UserError)):
                self._log_checkpoint()
            raise
        finally:
            self._callbacks.restore_log_settings()

    def _fit(self, plan: TrainingPlan, plain_step_seconds: float | None) -> FitResult:
        if self._attempts and not self._attempts.begin_attempt(plan, step=self.step or 0):
            self._note(
                f"{plan} ended its process {MOST_ATTEMPTS} times without progress: "
                f"trained with {plan.plain}."
            )
            plan = plan.plain
        plan = self._in_slices(plan)
        trials_left = self._settings.max_rollbacks or 0
        while True:
            if self._point is not None:
                self._prepare(plan, self._point.checkpoint)
            guard = self._guard(plan)
            try:
                ended = self._loop.fit(
                    plan, guard=guard, plain_step_seconds=plain_step_seconds, data=self._data
                )
            except StateMismatchError as mismatch:
                self._restart(mismatch)
                continue
            except DivergenceError as divergence:
                if not self._can_go_back(guard):
                    raise
                better = plan.safer if trials_left else None
                if better is None:
                    return self._locate(divergence, guard, plan)
                is_short, what = False, str(divergence)
            except Exception as error:
                # Errors of callbacks, evaluations and Keras itself are not the plan's.
                if error is not guard.failure or not self._can_go_back(guard):
                    raise
                better = self._plan_after(error, plan, guard, trials_left=trials_left)
                if better is None:
                    raise
                is_short, what = shortage.is_of_memory(error), _summary(error)
            else:
                return self._result(ended, plan, guard=guard)
            # Outside the except clauses, so that no traceback keeps tensors alive.
            self._save_seconds += guard.save_seconds
            self._roll_back(guard)
            self._note(f"{what} with {plan}: rolled back to step {self.step}; now {better}.")
            plan, trials_left = better, trials_left - (not is_short)

    def _restart(self, mismatch: StateMismatchError) -> None:
        """Discards a checkpoint that does not fit the model; raises UserError after a rollback."""
        if self._has_rolled_back:
            raise errors.UserError(
                f"Expected a state that fits the model. Received: {mismatch}. {self._notes[-1]} "
                "Run the training again; if this recurs, run it without a plan."
            ) from mismatch
        self._note(
            f"The checkpoint of {self._point} does not fit: {mismatch}. "
            "The training started from scratch."
        )
        self._point = self._resumed_step = None
        self._loop.functions.retrace()  # callbacks get `on_train_begin` again
        self._callbacks.reset()
        self._data = self._data_from_the_beginning()

    def _note(self, note: str) -> None:
        self._notes.append(note)
        _LOGGER.warning("%s", note)

    def _result(self, ended: TimedFit, plan: TrainingPlan, *, guard: Guard) -> FitResult:
        self._forget_attempts()
        return FitResult(
            *ended,
            plan,
            notes=(*self._notes, *guard.notes),
            resumed_step=self._resumed_step,
            checkpoint_time_seconds=self._save_seconds + guard.save_seconds,
            oom_count=self.oom_count,
        )

    def _plan_after(
        self, error: Exception, plan: TrainingPlan, guard: Guard, *, trials_left: int
    ) -> TrainingPlan | None:
        """Returns a plan that may avoid this error, None without one; raises as `fit` does."""
        if shortage.is_of_memory(error):
            return self._in_smaller_slices(plan, error, guard)
        is_alone = self._sync.size == 1
        if plan.is_plain_fit or isinstance(error, _NOT_THE_PLAN) or not (is_alone and trials_left):
            return None
        return plan.plain

    def _in_smaller_slices(
        self, plan: TrainingPlan, error: Exception, guard: Guard
    ) -> TrainingPlan | None:
        rows = batches.declared_batch_size(self._call)
        obstacle = eligibility.obstacle(self._call, self._loop)
        obstacle = obstacle or self._loop.functions.slicing_obstacle
        if self._sync.size > 1:
            self._shortages.end_step(error, plan, batch_rows=rows, obstacle=obstacle)
        if obstacle:
            _LOGGER.warning("Out of memory, and no micro-batches are possible: %s.", obstacle)
            return None
        first = self._loop.first_batch.batch
        if rows is None and first is not None:
            rows = _MOST_OF_FIRST * int(row_count(first))
        most = -(-(rows or _MOST_ROWS) // self._writers.replicas)
        if plan.micro_batches >= most:
            raise shortage.one_row_error(self._call.model, first) from error
        point = self._last_good(guard)
        is_read_again = point is not None and not point.checkpoint.data.is_saved
        if is_read_again and ancestry.is_stream(self._call.arguments["x"]):
            raise errors.UserError(
                "Expected data that can be read again, to go back after a step that ran out of "
                f"memory. Received: a generator that gives each element once, and {plan}. Make the "
                "batch smaller, or give from_generator a function that can be called again."
            ) from error
        self.oom_count += 1
        slices = min(2 * plan.micro_batches, most)
        return plan.in_slices(slices, steps_per_execution=self._loop.users_steps_per_execution)

    def _in_slices(self, plan: TrainingPlan) -> TrainingPlan:
        """Returns the plan, with more slices if a worker ran out of memory with these before."""
        left = self._shortages.left
        if left is None:
            return plan
        if plan.micro_batches <= left.micro_batches:
            steps = self._loop.users_steps_per_execution
            plan = plan.in_slices(2 * left.micro_batches, steps_per_execution=steps)
        self._note(
            f"Worker {left.worker} had run out of memory: all resumed at step {self.step or 0} "
            f"with {plan}"
        )
        return plan

    def _last_good(self, guard: Guard) -> ResumePoint | None:
        latest = self._store.latest() if self._store and guard.writer.count else None
        if latest is not None:
            return self._saved_point(*latest)
        return guard.snapshot or self._point

    def _saved_point(self, folder: pathlib.Path, checkpoint: Checkpoint) -> DiskSnapshot:
        has_other_writers = checkpoint.writers != self._writers
        return DiskSnapshot(checkpoint, folder, self._sync, has_other_writers=has_other_writers)

    def _roll_back(self, guard: Guard) -> None:
        self._point, self._has_rolled_back = self._last_good(guard), True
        guard.failure = None
        gc.collect()  # frees the failed step's tensors, which its error held
        if self._point is not None and not self._point.checkpoint.data.is_saved:
            # The same data in the same order: reading has changed the state of the user's dataset.
            self._data = self._data_from_the_beginning()

    def _data_from_the_beginning(self) -> tf.data.Dataset | None:
        """Returns a copy of the data in their first order; None if they cannot be copied."""
        return ancestry.independent(self._call.arguments["x"], may_share=True)

    def continue_logs(self) -> None:
        """Makes loggers continue their files; acts once, before `on_train_begin`."""
        if self._point is not None and self.step and not self._are_logs_continued:
            self._callbacks.continue_logs(self._point.callbacks)
        self._are_logs_continued = True

    def note_callbacks(self) -> None:
        """Notes the callbacks' state after `on_train_begin` and before any `on_epoch_begin`."""
        self._callbacks.begin()

    def _prepare(self, plan: TrainingPlan, checkpoint: Checkpoint) -> None:
        """Creates all variables before a later epoch can change which ones are created."""
        model = self._call.model
        set_trainable(model, checkpoint.trainable_at_first)
        try:
            self._loop.prepare(plan)
        except TypeError:  # no batch of this kind can be made up
            _LOGGER.info("The steps are traced when the first batch comes.", exc_info=True)
        set_trainable(model, checkpoint.trainable)

    def _can_go_back(self, guard: Guard) -> bool:
        """Whether the weights can be restored; not if no checkpoint can be read."""
        return not guard.step or self._last_good(guard) is not None

    def _guard(self, plan: TrainingPlan) -> Guard:
        self.continue_logs()
        self._are_logs_continued = False  # `fit` now calls `on_train_begin`
        arguments, loop = self._call.arguments, self._loop
        task = Task(
            model=self._call.model,
            keras_api=loop.keras_api,
            epochs=arguments["epochs"],
            initial_epoch=arguments["initial_epoch"],
            epoch_length=loop.train_length,
            plan=plan,
            fingerprint=self._fingerprint,
            store=self._store,
            sync=self._sync,
            clock=self._clock,
            settings=self._settings,
            watches=self._watches,
            bad_at_first=frozenset(self._bad_at_first),
        )
        return Guard(task, self._callbacks, resume=self._point)

    def _find(self) -> ResumePoint | None:
        """Returns this training's newest checkpoint; reports and prunes those of others."""
        if self._store is None:
            return None
        latest = self._store.latest()
        if not self._sync.all_equal(latest and latest[0].name):
            _LOGGER.warning("Workers disagree on the latest checkpoint; starting from scratch.")
            return None
        if latest is not None:
            folder, checkpoint = latest
            _LOGGER.warning("Training resumes from step %d: %s", checkpoint.step, folder)
            return self._saved_point(folder, checkpoint)
        if not self._sync.is_chief:
            return None
        folder_here = self._store.folder
        beside = (path for path in folder_here.parent.glob("*") if path.is_dir())
        others = sorted(
            (path for path in beside if path != folder_here), key=lambda path: path.stat().st_mtime
        )
        for path in others[:-_OTHERS_KEPT]:
            _LOGGER.warning("The checkpoints of another training are removed: %s", path)
            shutil.rmtree(path, ignore_errors=True)
        for path in others[-1:]:
            latest = CheckpointStore(path).latest()
            if latest is not None:
                changes = cache_key.differences(latest[1].fingerprint, self._fingerprint.fields)
                values = training_fingerprint.differing_values(
                    latest[1].values, self._fingerprint.values
                )
                self._note(
                    f"The checkpoint {latest[0]} belongs to another training and is not used: "
                    f"{cache_key.describe(changes)}. {values}".rstrip(" .")
                )
        return None

    def _locate(self, divergence: DivergenceError, guard: Guard, plan: TrainingPlan) -> FitResult:
        """Retrains from the last good state; UserError names the step if it diverges again."""
        self._save_seconds += guard.save_seconds
        self._roll_back(guard)
        _LOGGER.warning("%s with %s: finding the cause from step %s.", divergence, plan, self.step)
        steps = f"{divergence.first_step} to {divergence.last_step}"
        where = f"{divergence.what} in one of the steps {steps}"
        remedy = "Lower the learning rate or clip the gradients (clipnorm of the optimizer)."
        again = self._guard(plan.plain)
        numerics_check = NumericsCheck(
            self._call.model,
            self._loop.keras_api,
            divergence=divergence,
            steps_done=lambda: again.step,
        )
        try:
            ended = self._loop.fit(
                plan.plain, guard=again, numerics_check=numerics_check, data=self._data
            )
        except DivergenceError as diverged:
            where, bad = f"{diverged.what} in step {diverged.last_step}", numerics_check.found
            if bad is not None:
                where = f"NaN or Inf in step {bad.step}, first in {bad}"
                remedy = bad.remedy
        except Exception as error:
            if error is not again.failure:  # not from the steps: Keras' `fit` raises it, too
                raise
            _LOGGER.warning("The cause of the divergence could not be found.", exc_info=True)
        else:
            self._note(
                f"{divergence} with {plan}: rolled back to step {self.step}; it did not recur."
            )
            return self._result(ended, plan.plain, guard=again)
        raise errors.UserError(
            f"Expected the training to stay finite. Received: {where} (with {plan}). {remedy}"
        ) from divergence

    def _forget_attempts(self) -> None:
        if self._attempts:
            self._attempts.forget_attempts()

    def _log_checkpoint(self) -> None:
        latest = self._store.latest() if self._store else None
        if latest:
            _LOGGER.error(
                "The training failed. The next run resumes from step %d: %s",
                latest[1].step,
                latest[0],
            )


def _summary(error: Exception) -> str:
    if shortage.is_of_memory(error):
        cause = shortage.cause(error)
        return f"Out of memory ({cause})" if cause else "Out of memory"
    return errors.in_one_line(error)
