"""Guard: stands around the train function; saves, goes on from what was saved, watches."""

import contextlib
import math
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.training.lines.base_line import Function
from tfx_perf.training.recovery.blow_up import BlowUp
from tfx_perf.training.recovery.callback_state import CallbackState
from tfx_perf.training.recovery.checkpoint import Checkpoint
from tfx_perf.training.recovery.data_position import DataPosition
from tfx_perf.training.recovery.random_layers import saveable_random_layers
from tfx_perf.training.recovery.saver import Saver
from tfx_perf.training.recovery.task import Task
from tfx_perf.training.recovery.termination import Termination
from tfx_perf.training.recovery.training_state import TrainingState

Logs = dict[str, Any]
Run = Callable[[Any, int], Logs]  # takes Keras' iterator and a number of steps


class Guard:
    """Guards one run of Keras' `fit`.

    Attributes:
        last_call_steps: steps that the last call of the train function really ran.
        saver: wrote the checkpoints.
        step: training steps that are done, those before a resumption included.
    """

    def __init__(
        self,
        task: Task,
        callbacks: CallbackState,
        *,
        resume: tuple[pathlib.Path, Checkpoint] | None,
        has_trained: bool,
    ) -> None:
        """Prepares a run.

        Args:
            task: what to guard.
            callbacks: state of the callbacks of this `fit`.
            resume: folder and manifest of the checkpoint to go on from.
            has_trained: whether this process has trained the model before, so that all its
                variables are there.
        """
        self.last_call_steps = 0
        self.saver = Saver(task)
        self.step = 0
        self._task = task
        self._callbacks = callbacks
        self._state = TrainingState(task.model, task.line, callbacks)
        self._data = DataPosition()
        self._resume = resume
        self._has_trained = has_trained
        self._begun = False
        self._epoch = task.initial_epoch
        self._step_in_epoch = 0
        self._skip = 0
        self._logs: Logs = {}
        self._termination = Termination()

    @property
    def notes(self) -> list[str]:
        """What the user should know, in sentences."""
        note = self._data.note
        saved = [f"the position in the data was not saved: {note}"] if note else []
        return [*filter(None, [self.saver.note]), *saved]

    @property
    def history(self) -> Any:
        """The History that `fit` is to fill."""
        return self._callbacks.history

    @property
    def initial_epoch(self) -> int:
        """The first epoch that `fit` is to run."""
        return self._resume[1].epoch if self._resume else self._task.initial_epoch

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Wraps `fit`."""
        task = self._task
        random_layers = contextlib.nullcontext()
        if not task.plan.is_plain_fit:  # there the masks are what the user's seed makes of them
            random_layers = saveable_random_layers(task.model)
        termination = self._termination if task.is_lasting else contextlib.nullcontext()
        with random_layers, termination:
            yield

    def callbacks(self) -> tuple[Any, Any]:
        """Returns callbacks to put before and behind the user's; the History comes last."""
        task, resume = self._task, self._resume

        def begin_training(logs: Any = None) -> None:
            if resume is not None and resume[1].step:
                self._callbacks.keep_logs(resume[1].epoch)

        def begin_epoch(epoch: int, logs: Any = None) -> None:
            if not self._begun:
                self._callbacks.begin(resume[0] if resume else None)
            self._begun = True
            self._epoch, self._step_in_epoch = epoch, 0

        make = task.line.callbacks.LambdaCallback
        first, last = make(on_train_begin=begin_training), make(on_epoch_begin=begin_epoch)
        first._supports_tf_logs = last._supports_tf_logs = True
        return first, last

    def around(self, run: Run, take: Callable[[], int]) -> Function:
        """Returns the train function for Keras.

        Args:
            run: runs steps.
            take: returns how many steps the next call is to run.
        """

        def call(iterator: Any) -> Logs:
            steps = take()
            iterator = self._data.follow(iterator)
            if self._resume is not None:
                self._go_on(run, iterator, steps)
                iterator = self._data.follow(iterator)
            elif not self.step:
                self._save_start()
            elif self._termination.requested:  # it came during the evaluation, say
                self._end()
            skipped = min(steps, self._skip)
            self._skip -= skipped
            self.last_call_steps = steps - skipped
            if self.last_call_steps:
                self._logs = run(iterator, self.last_call_steps)
                self._count(self.last_call_steps)
                self._watch()
                self._save_if_due()
            if self._termination.requested:
                self._end()
            return self._logs

        return call

    def _count(self, steps: int) -> None:
        self.step += steps
        self._step_in_epoch += steps
        self._data.steps += steps

    def _go_on(self, run: Run, iterator: Any, steps: int) -> None:
        """Brings everything to where the checkpoint was made.

        In a new process one call is run for nothing: it creates the variables that do not
        exist before.
        """
        folder, checkpoint = self._resume
        self._resume = None
        if not self._has_trained:
            self._logs = run(iterator, steps)
            self._data.steps += steps
        self._state.read(folder)
        if not checkpoint.step_in_epoch:
            self._task.model.reset_metrics()
        length = self._task.epoch_length
        self._data.restore(
            folder,
            checkpoint,
            pass_steps=length,
            makes_spares=self._task.line.overcounts and length is not None,
        )
        self.step = self.saver.step = checkpoint.step
        self._skip = self._step_in_epoch = checkpoint.step_in_epoch
        if checkpoint.logs:
            self._logs = {
                name: tf.constant(math.nan if value is None else value)
                for name, value in checkpoint.logs.items()
            }

    def _watch(self) -> None:
        """Raises BlowUp if the training is lost."""
        loss = self._logs.get("loss") if self._task.watches else None
        if loss is None:
            return
        value, bound = float(loss), self._task.settings.loss_upper_bound
        if bound is not None and value > bound:
            raise self._blow_up(f"loss={value:g}, above loss_upper_bound={bound:g},")
        # A loss that is not finite need not spoil the weights: loss scaling skips such a step.
        if not math.isfinite(value) and self._state.has_bad_weights():
            raise self._blow_up(f"loss={value:g}")

    def _blow_up(self, what: str) -> BlowUp:
        first_step = self.step - self.last_call_steps + 1
        return BlowUp(what, first_step=first_step, last_step=self.step)

    def _save_if_due(self) -> None:
        task = self._task
        is_last = self._epoch == task.epochs - 1 and self._step_in_epoch == task.epoch_length
        if self.saver.is_due(self.step, is_last=is_last):
            self._save()

    def _save_start(self) -> None:
        """Saves where `fit` began, for a rollback."""
        model = self._task.model
        if model.built:
            self._task.line.build(model, None)
            self._save()

    def _end(self) -> None:
        if self.step != self.saver.step:
            self._save()
        self._termination.go_on()

    def _save(self) -> None:
        if self.step and self._task.watches and self._state.has_bad_weights():
            raise self._blow_up("NaN or Inf in the weights")
        self.saver.save(self.step, self._fill)

    def _fill(self, folder: pathlib.Path) -> Checkpoint:
        """Writes the files of a checkpoint and returns its manifest."""
        logs = {}
        for name, value in self._logs.items():
            number = float(value) if np.ndim(value) == 0 else math.nan
            logs[name] = number if math.isfinite(number) else None
        self._state.write(folder)
        return Checkpoint(
            step=self.step,
            epoch=self._epoch,
            step_in_epoch=self._step_in_epoch,
            fingerprint=self._task.fingerprint,
            plan=self._task.plan,
            logs=logs,
            data_saved=self._data.save(folder),
            data_passes=self._data.passes,
            data_steps=self._data.steps,
        )
