"""Guard: resumes and watches a training, and saves it between calls of its train function."""

import contextlib
import dataclasses
import functools
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tfx_perf.config.training import TrainingSettings
from tfx_perf.isolate import termination
from tfx_perf.isolate.termination import Termination
from tfx_perf.tf_internals.iterators import FitIterators
from tfx_perf.training.fit.epochs import StepCounts
from tfx_perf.training.keras_api.base_api import KerasApi, set_trainable, trainable_flags
from tfx_perf.training.recovery import plain_data
from tfx_perf.training.recovery.callback_state import CallbackState
from tfx_perf.training.recovery.checkpoint import Checkpoint, MemorySnapshot, ResumePoint
from tfx_perf.training.recovery.checkpoint_store import CheckpointStore
from tfx_perf.training.recovery.checkpoint_writer import CheckpointSchedule, CheckpointWriter
from tfx_perf.training.recovery.data_position import DataPosition, PositionSnapshot
from tfx_perf.training.recovery.divergence import DivergenceError
from tfx_perf.training.recovery.training_fingerprint import TrainingFingerprint
from tfx_perf.training.recovery.training_state import TrainingState, Writers
from tfx_perf.training.replicas.sync import Sync
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.step.step_runner import Logs, StepRunner

_READ_AGAIN = (
    "a resumed training reads its data again up to the checkpoint, which is exact if their order "
    "is fixed"
)
_PERIOD_SECONDS = 1.0  # between two exchanges among several workers
_MOST_CALLS = 1000


@dataclasses.dataclass(frozen=True)
class Task:
    """One `fit` that is guarded."""

    model: Any
    keras_api: KerasApi
    epochs: int  # number of the last epoch
    initial_epoch: int  # number of the first epoch
    epoch_length: int | None  # in steps, None if unknown
    plan: TrainingPlan
    fingerprint: TrainingFingerprint
    store: CheckpointStore | None  # None if nothing should outlive the process
    sync: Sync
    clock: CheckpointSchedule
    settings: TrainingSettings
    watches: bool  # whether NaN and Inf are an error
    bad_at_first: frozenset[int] = frozenset()  # see `TrainingState.bad_weights`


class Guard:
    """Guards one run of Keras' `fit`."""

    def __init__(self, task: Task, callbacks: CallbackState, *, resume: ResumePoint | None) -> None:
        self.iterators = FitIterators()
        self.writer = CheckpointWriter(task.store, clock=task.clock, settings=task.settings)
        self.save_seconds = 0.0  # of all saving so far, including waits
        self.snapshot: MemorySnapshot | None = None  # in memory, unless there is a checkpoint
        self.step = self.run_count = 0  # steps done in total, and in this run
        self.counts: StepCounts | None = None  # compared before each save
        self.failure: Exception | None = None  # raised by the steps
        self._task = task
        self._callbacks = callbacks
        self._resume = resume
        self._data = DataPosition(self.iterators)
        self._state = TrainingState(task.model, task.keras_api)
        self._trainable_at_first: tuple[bool, ...] = ()
        self._bad_at_first: frozenset[int] = frozenset()
        self._last_finite_step = 0
        self._is_due = self._waits = False
        self._epoch = task.initial_epoch
        self._step_in_epoch = 0
        self._skip = 0
        self.logs: Logs = {}  # of the last call
        self._termination = Termination()
        self._decisions = Decisions(task.sync, is_told_to_end=lambda: self._termination.requested)

    @property
    def notes(self) -> list[str]:
        """Sentences for the user."""
        note = self._data.note
        if self._task.store is None:
            note = self._resume.position.note if self._resume else None
        saved = [f"{_READ_AGAIN}: {note}"] if note else []
        lost = [f"{name} is not what it was at the checkpoint" for name in self._callbacks.lost]
        return [*filter(None, [self.writer.note]), *saved, *lost]

    @property
    def history(self) -> Any:
        """The History for `fit` to fill."""
        return self._callbacks.history

    @property
    def initial_epoch(self) -> int:
        """The first epoch for `fit` to run."""
        return self._resume.checkpoint.epoch if self._resume else self._task.initial_epoch

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Wraps the run of `fit`; use a guard only once."""
        try:
            with self._taking_sigterm():
                yield
        finally:
            self._data.release()

    def _taking_sigterm(self) -> contextlib.AbstractContextManager[Any]:
        if self._task.store:
            return self._termination
        return termination.at_once() if self._task.sync.size > 1 else contextlib.nullcontext()

    def callback(self) -> Any:
        """Returns the callback to put before the user's."""
        resume = self._resume
        is_first = True

        def before_epoch(epoch: int, logs: Any = None) -> None:
            nonlocal is_first
            if is_first:  # after every `on_train_begin`, which resets callbacks
                self._callbacks.begin()
                if resume is not None:
                    self._callbacks.restore(resume.callbacks)
            is_first = False
            self._epoch, self._step_in_epoch = epoch, 0

        return self._task.keras_api.callback(on_epoch_begin=before_epoch)

    def begin(self, iterator: Any, runner: StepRunner) -> int:
        """Moves to the point where the training resumes, or keeps its initial state.

        Returns how many batches other processes took from the iterator in earlier epochs.
        """
        iterator = self._data.follow(iterator)
        model, resume, taken_before = self._task.model, self._resume, 0
        if resume is None:
            self._trainable_at_first = trainable_flags(model)
        else:  # undoes changes by callbacks, which got `on_epoch_begin` again
            set_trainable(model, resume.checkpoint.trainable)
            self._trainable_at_first = resume.checkpoint.trainable_at_first
        runner.trace(iterator)
        self._state = TrainingState(
            model, self._task.keras_api, used=runner.used_variables, sync=self._task.sync
        )
        if resume is not None:
            self._data.restore(resume.position)
            resume.restore(self._state)  # after reading, which may draw random numbers
            checkpoint = resume.checkpoint
            self.step = self.writer.step = self._last_finite_step = checkpoint.step
            self._skip = self._step_in_epoch = checkpoint.step_in_epoch
            place = self._data.position
            taken_before = place.taken[place.current] - self._skip
            packed = resume.callbacks.logs
            with self._callbacks.noting("what the last call returned", packed):
                logs = plain_data.unpacked(packed)
                self.logs = {} if logs is None else logs
            if not self._skip:
                self._callbacks.restore(resume.callbacks)
            if self.counts is not None:  # the optimizer's count has changed
                self.counts.begin(step_in_epoch=self._skip)
        else:
            self._save_in_memory()
        if self._task.watches:
            self._bad_at_first = self._task.bad_at_first | self._state.bad_weights()
        return taken_before

    def before_call(self, iterator: Any, steps: int) -> tuple[Any, int]:
        """Returns the iterator to take batches from, and the steps that are not done yet."""
        iterator = self._data.follow(iterator)
        if self._decisions.is_ending or (self._is_due and not self._step_in_epoch):
            self._save()  # the last epoch has ended, with its evaluation
        if self._decisions.is_ending:
            self._termination.go_on()
        skipped = min(steps, self._skip)
        self._skip -= skipped
        if skipped and not self._skip and self._resume is not None:
            # Their state after the last call before the checkpoint, whatever they did in the
            # skipped calls.
            self._callbacks.restore(self._resume.callbacks)
        return iterator, steps - skipped

    def before_end(self) -> Logs:
        """Restores the checkpoint after a step that found no data; returns the last logs."""
        if self._resume is not None:
            self._resume.restore(self._state)
        return self.logs

    def after_call(self, logs: Logs, steps: int) -> None:
        """Checks the results of a call's steps, and saves if due."""
        self.logs = logs
        self.step += steps
        self.run_count += steps
        self._step_in_epoch += steps
        self._data.count_taken(steps)
        self._watch(steps)
        if self._step_in_epoch == self._task.epoch_length:
            self._check_weights()
        self._save_if_due()

    def _watch(self, steps: int) -> None:
        if not self._task.watches or not isinstance(self.logs, dict):
            return
        # A user's step may name its loss differently or return none: then all logs are watched.
        watched = {"loss": self.logs["loss"]} if "loss" in self.logs else self.logs
        values = {name: _as_floats(value) for name, value in watched.items()}
        loss, bound = values.get("loss"), self._task.settings.max_loss
        if bound is not None and loss is not None and loss.ndim == 0 and loss > bound:
            what = f"loss={loss:g}, above max_loss={bound:g},"
            raise self._divergence(what, steps)
        # A loss that is not finite need not spoil the weights: loss scaling skips such a step.
        for name, value in values.items():
            if value is not None and not np.all(np.isfinite(value)) and self._has_bad_weights():
                shown = f"{value:g}" if value.ndim == 0 else "nan"
                raise self._divergence(f"{name}={shown}", steps)

    def _check_weights(self) -> None:
        """Raises DivergenceError if weights are not finite, which ReLU may hide from the loss."""
        if self.step and self._task.watches:
            if self._has_bad_weights():
                first_step = self._last_finite_step + 1
                raise DivergenceError(
                    "NaN or Inf in the weights", first_step=first_step, last_step=self.step
                )
            self._last_finite_step = self.step

    def _has_bad_weights(self) -> bool:
        """Whether NaN or Inf has appeared in a variable; a mask may hold -Inf from the start."""
        return bool(self._state.bad_weights() - self._bad_at_first)

    def _divergence(self, what: str, steps: int) -> DivergenceError:
        return DivergenceError(what, first_step=self.step - steps + 1, last_step=self.step)

    def _save_if_due(self) -> None:
        """Saves if due, or defers it until the state is whole.

        At the end of an epoch it waits for the beginning of the next one: by then the evaluation
        and the callbacks are done, and none of that has to run again.
        """
        task = self._task
        ends_epoch = self._step_in_epoch == task.epoch_length
        is_last = ends_epoch and self._epoch == task.epochs - 1
        self._decisions.take(is_due=self.writer.is_due(self.step, is_last=is_last), must=is_last)
        if self._decisions.is_ending and (is_last or not ends_epoch):
            self._save()
            self._termination.go_on()
        self._is_due = self._is_due or self._decisions.is_due
        if self._is_due and (is_last or not (ends_epoch or self._waits)):
            self._save(may_wait=not is_last)

    def _save(self, *, may_wait: bool = False) -> None:
        began = time.perf_counter()
        try:
            self._save_or_wait(may_wait=may_wait)
        finally:
            self.save_seconds += time.perf_counter() - began

    def _save_or_wait(self, *, may_wait: bool) -> None:
        """Saves; may defer it to the next epoch if the state does not determine later passes."""
        self._waits = False
        if self.step == self.writer.step:
            self._is_due = False
            return
        self._check_weights()
        store, save = self._task.store, self._save_in_memory
        if store is not None:
            position = self._data.snapshot()
            self._waits = may_wait and not self._data.note and not position.position.is_saved
            if self._waits:
                return
            save = functools.partial(self._save_to_disk, store, position)
        self._is_due = False
        if self.counts is not None:
            self.counts.check()
        self.writer.save(self.step, save)

    def _save_to_disk(self, store: CheckpointStore, position: PositionSnapshot) -> None:
        def fill(folder: pathlib.Path) -> Checkpoint:
            self._state.write(folder)
            self._callbacks.write(folder, self.logs)
            return self._checkpoint().model_copy(update={"data": position.write(folder)})

        store.save(fill)
        self.snapshot = None  # it is as large as the weights and all slots

    def _save_in_memory(self) -> None:
        """Keeps the state in memory; before the first step, data can just be read again."""
        here = self._data
        place = here.snapshot(in_memory=True) if self.step else PositionSnapshot(here.position)
        self.snapshot = self._task.sync.barrier(
            lambda: MemorySnapshot(
                checkpoint=self._checkpoint().model_copy(update={"data": place.position}),
                state=self._state.snapshot(),
                position=place,
                callbacks=self._callbacks.snapshot(self.logs),
            )
        )

    def _checkpoint(self) -> Checkpoint:
        return Checkpoint(
            step=self.step,
            epoch=self._epoch,
            step_in_epoch=self._step_in_epoch,
            fingerprint=self._task.fingerprint.fields,
            values=self._task.fingerprint.values,
            plan=self._task.plan,
            writers=Writers.of(self._task.model),
            trainable=trainable_flags(self._task.model),
            trainable_at_first=self._trainable_at_first,
        )


def _as_floats(value: Any) -> np.ndarray | None:
    try:
        return np.asarray(value, np.float64)
    except (TypeError, ValueError):
        return None


class Decisions:
    """Joint decisions of all workers on saving and ending; a single process decides at once."""

    def __init__(self, sync: Sync, *, is_told_to_end: Callable[[], bool]) -> None:
        self.is_due = False
        self._sync, self._is_told_to_end = sync, is_told_to_end
        self._all_end = False
        self._calls_left = 0
        self._calls = 0
        self._since = time.perf_counter()

    @property
    def is_ending(self) -> bool:
        """Whether one of the workers was asked to end, and all of them know."""
        return self._is_told_to_end() if self._sync.size == 1 else self._all_end

    def take(self, *, is_due: bool, must: bool) -> None:
        """Decides about once a second, and whenever it `must`, which is equal on all workers."""
        if self._sync.size == 1:
            self.is_due = is_due
            return
        self.is_due = False
        self._calls += 1
        if self._calls_left and not must:
            self._calls_left -= 1
            return
        seconds = max(time.perf_counter() - self._since, 1e-6)
        calls = int(np.clip(_PERIOD_SECONDS * self._calls / seconds, 0, _MOST_CALLS))
        gathered = self._sync.all_gather([is_due, self._is_told_to_end(), calls])
        self.is_due, self._all_end = bool(gathered[:, 0].any()), bool(gathered[:, 1].any())
        self._calls_left = int(gathered[:, 2].min())
        self._calls, self._since = 0, time.perf_counter()
