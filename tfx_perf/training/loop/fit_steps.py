"""StepFunction, which Keras' `fit` calls to train, and wrappers between it and the steps."""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.core import formatting
from tfx_perf.tf_internals import iterators
from tfx_perf.training.fit.timer import StepTimer, wait_for
from tfx_perf.training.recovery.divergence import NumericsCheck
from tfx_perf.training.recovery.guard import Guard
from tfx_perf.training.speedups.train_functions import TrainFunctions
from tfx_perf.training.step.step_runner import EpochStepCounter, Logs, StepRunner, StepRunnerWrapper
from tfx_perf.training.step.steps import DataEndedError

_WATCHED_CALLS = 20
_CLEARLY_SLOWER = 1.2

_LOGGER = logging.getLogger(__name__)


class StepFunction:
    """The train function of a `fit`: each call runs the next steps of an epoch.

    The guard, which watches and saves, and the timer act before and after these steps.
    """

    def __init__(
        self,
        runner: StepRunner,
        model: Any,
        *,
        countdown: EpochStepCounter,
        steps_per_execution: Callable[[], int],
        timer: StepTimer,
        guard: Guard | None,
        before_first: Callable[[Any], None] | None,
        stop_when: Callable[[StepTimer], bool],
    ) -> None:
        """Runs nothing yet.

        Args:
            runner: runs the steps.
            model: the model that is trained.
            countdown: counts the steps that are left in the epoch.
            steps_per_execution: returns the steps of the next call, if no epoch cuts it short.
            timer: times the calls; a callback notifies it of the beginning of epochs.
            guard: None if nothing is saved.
            before_first: receives the iterator before the first call takes anything from it.
            stop_when: called after each call; true ends `fit`.
        """
        self._runner, self._model = runner, model
        self._countdown, self._steps_per_execution = countdown, steps_per_execution
        self._timer, self._guard = timer, guard
        self._before_first, self._stop_when = before_first, stop_when

    def __call__(self, iterator: Any) -> Logs:
        """Runs steps; returns the logs of the last one."""
        timer, guard, countdown = self._timer, self._guard, self._countdown
        timer.begin_call()
        has_ended = countdown.has_ended  # in the last call
        taken = countdown.take(self._steps_per_execution())
        if self._before_first is not None:
            self._before_first(iterator)
            self._before_first = None
        steps = taken
        if guard is not None:
            iterator, steps = guard.before_call(iterator, taken)
            if not steps:  # all done before the training was interrupted
                return guard.logs
        try:
            logs = self._runner.run(iterator, steps)
        except Exception as error:
            if guard is not None:
                # Keras needs logs of an epoch's first call, and no step was done before this.
                is_resumed = steps < taken and countdown.call_count == 1
                if is_resumed and isinstance(error, tf.errors.OutOfRangeError):
                    countdown.has_ended = True
                    return guard.before_end()
                if not has_ended:
                    guard.failure = error
            raise
        steps = min(steps, countdown.last_call_steps)
        if guard is not None:
            guard.after_call(logs, steps)
        timer.end_call(steps, logs, save_seconds=0.0 if guard is None else guard.save_seconds)
        if self._stop_when(timer):
            self._model.stop_training = True
        return logs


class KerasSteps:
    """Keras' own train function as a `StepRunner`; a call has the user's steps per execution."""

    def __init__(self, functions: TrainFunctions, *, numerics_check: NumericsCheck | None) -> None:
        self._functions, self._numerics_check = functions, numerics_check
        self._traced = functions.keras.train

    def run(self, iterator: Any, steps: int) -> Logs:
        """Runs one call, whose number of steps does not depend on `steps`."""
        check = self._numerics_check
        if check is not None and check.suspects(steps):
            return check.run(iterator, steps)
        return self._functions.keras.train(iterator)  # remade if a callback asks for it

    def trace(self, iterator: Any) -> None:
        """Traces the steps without running any."""
        self._traced.trace(iterator)

    def used_variables(self) -> Iterable[tf.Variable]:
        """Returns the variables that the steps read or write; none before `trace`."""
        return self._traced.used_variables()


class CountedSteps(StepRunnerWrapper):
    """Counts a call's steps by the optimizer: Keras does not report that the data ended early."""

    def __init__(self, inner: StepRunner, *, countdown: EpochStepCounter, model: Any) -> None:
        super().__init__(inner)
        self._countdown, self._model = countdown, model

    def run(self, iterator: Any, steps: int) -> Logs:
        """Runs a call; sets the counter's `last_call_steps` if it had fewer steps."""
        before = _steps_done(self._model)
        logs = self.inner.run(iterator, steps)
        self._countdown.last_call_steps = min(steps, _steps_done(self._model) - before)
        return logs


class UnknownLengthEpochs(StepRunnerWrapper):
    """Returns the logs of a call in which the data end; the next call ends the epoch.

    It does so with Keras' own step, which changes the model although it finds no batch: it counts
    as a step of the optimizer, and draws random numbers.
    """

    def __init__(
        self, inner: StepRunner, functions: TrainFunctions, *, countdown: EpochStepCounter
    ) -> None:
        super().__init__(inner)
        self._functions, self._countdown = functions, countdown

    def run(self, iterator: Any, steps: int) -> Logs:
        """Runs steps, at least one; corrects the counters if the data end."""
        countdown = self._countdown
        try:
            return self.inner.run(iterator, steps)
        except DataEndedError as ended:
            countdown.end_early(steps=ended.steps, asked=steps)
            if ended.steps and not countdown.is_last:
                return ended.logs
            self._functions.keras.train(iterator)  # raises OutOfRangeError, too
            raise


def _steps_done(model: Any) -> int:
    return int(model.optimizer.iterations.numpy())


class FirstBatch:
    """The first batch of a training and how long it took to load; None if it was not recorded.

    Reading the user's data again for it would change the later order of a seeded shuffle, and
    consume examples of a stream that has each only once.
    """

    def __init__(self) -> None:
        self.batch: Any = None
        self.seconds: float | None = None
        self.is_over = False


class NotingFirstBatch(StepRunnerWrapper):
    """Runs steps, and records the first batch, which it reads ahead with others of its call."""

    def __init__(self, inner: StepRunner, first: FirstBatch, *, whole: int = 1) -> None:
        super().__init__(inner)
        self._first = first
        self._whole = whole

    def run(self, iterator: Any, steps: int) -> Logs:
        """Runs steps, at least one."""
        first = self._first
        first.is_over = True
        self.run = self.inner.run  # type: ignore[method-assign]  # from now on
        if not iterators.is_of_dataset(iterator):
            return self.inner.run(iterator, steps)
        taken: list[Any] = []
        spec = iterator.element_spec
        try:  # before reading: not every structure can be passed on
            held = tf.data.Dataset.from_generator(lambda: iter(taken), output_signature=spec)
        except (TypeError, ValueError):
            return self.inner.run(iterator, steps)
        began = time.perf_counter()
        for batch in iterator:
            first.seconds = first.seconds or time.perf_counter() - began
            taken.append(batch)
            if len(taken) == self._whole:
                break
        if not taken:
            raise tf.errors.OutOfRangeError(None, None, "End of sequence")
        first.batch = taken[0]
        logs = self.inner.run(iter(held), len(taken))
        has_more = steps > len(taken) == self._whole  # fewer: the data have ended
        try:
            return self.inner.run(iterator, steps - len(taken)) if has_more else logs
        except DataEndedError as ended:
            raise DataEndedError(ended.logs or logs, len(taken) + ended.steps) from None


class KerasFallback(StepRunnerWrapper):
    """Drops a plan whose steps take clearly longer than Keras' own did in the trials.

    The next calls then run Keras' own steps, and keep them if they are faster; otherwise the
    machine is slow, and the plan resumes. `note` says why it was dropped; None while it runs.
    """

    def __init__(
        self, inner: StepRunner, plain_step: Callable[[Any], Logs], *, plain_step_seconds: float
    ) -> None:
        super().__init__(inner)
        self.note: str | None = None
        self._plain_step = plain_step
        self._most_seconds = _CLEARLY_SLOWER * plain_step_seconds
        self._slow_seconds: float | None = None  # of the plan, while plain steps are timed
        self._seconds: list[float] = []
        self._is_first = True

    def run(self, iterator: Any, steps: int) -> Logs:
        """Runs steps."""
        if self.note:
            return self._run_plainly(iterator, steps)
        run = self.inner.run if self._slow_seconds is None else self._run_plainly
        logs, seconds = _timed(run, iterator, steps)
        if not self._is_first:  # the first call traces
            self._seconds.append(seconds)
        self._is_first = False
        if len(self._seconds) == _WATCHED_CALLS:
            self._judge(float(np.median(self._seconds)))
            self._seconds.clear()
        return logs

    def _run_plainly(self, iterator: Any, steps: int) -> Logs:
        for _ in range(steps):
            logs = self._plain_step(iterator)
        return logs

    def _judge(self, seconds: float) -> None:
        slow_seconds = self._slow_seconds
        if slow_seconds is None:
            if seconds > self._most_seconds:
                self._slow_seconds, self._is_first = seconds, True
        elif slow_seconds > _CLEARLY_SLOWER * seconds:
            slow, plain = map(formatting.format_seconds, (slow_seconds, seconds))
            self.note = (
                f"dropped during training, because its step took {slow} and Keras' own {plain}; "
                "Keras' own steps ran from then on"
            )
            _LOGGER.warning("The plan was %s.", self.note)
        else:
            self._slow_seconds, self._most_seconds = None, _CLEARLY_SLOWER * slow_seconds


def _timed(run: Callable[[Any, int], Logs], iterator: Any, steps: int) -> tuple[Logs, float]:
    began = time.perf_counter()
    logs = run(iterator, steps)
    wait_for(logs)
    return logs, (time.perf_counter() - began) / steps
