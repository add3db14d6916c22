"""StepFunction: what Keras' `fit` calls to train; and what may stand between it and the steps."""

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

_WATCHED_CALLS = 20
_CLEARLY_SLOWER = 1.2

_LOGGER = logging.getLogger(__name__)


class StepFunction:
    """The train function of a `fit`: every call of it runs the next steps of an epoch.

    Before and after these come the guard, which watches and saves, and the timer.
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
            model: that is trained.
            countdown: of the steps that are left in the epoch.
            steps_per_execution: of the next call, if no epoch cuts it short.
            timer: of the calls; a callback tells it where epochs begin.
            guard: None where nothing is saved.
            before_first: gets the iterator before the first call takes anything from it.
            stop_when: whether to end `fit`, asked after each call.
        """
        self._runner, self._model = runner, model
        self._countdown, self._steps_per_execution = countdown, steps_per_execution
        self._timer, self._guard = timer, guard
        self._before_first, self._stop_when = before_first, stop_when
        self._has_ended = False  # the data, in the last call

    def __call__(self, iterator: Any) -> Logs:
        """Runs steps; returns the logs of the last one."""
        timer, guard, countdown = self._timer, self._guard, self._countdown
        if self._has_ended:
            self._has_ended = False
            raise tf.errors.OutOfRangeError(None, None, "End of sequence")
        timer.begin_call()
        taken = countdown.take(self._steps_per_execution())
        if self._before_first is not None:
            self._before_first(iterator)
            self._before_first = None
        steps = taken
        if guard is not None:
            iterator, steps = guard.before_call(iterator, taken)
            if not steps:  # of an epoch in which the training was interrupted
                return guard.logs
        try:
            logs = self._runner.run(iterator, steps)
        except Exception as error:
            if guard is not None:
                # In a first call no step was done before this: see `UnknownLengthEpochs`.
                is_resumed = steps < taken and countdown.call_count == 1
                if is_resumed and isinstance(error, tf.errors.OutOfRangeError):
                    self._has_ended = True
                    return guard.before_end()
                guard.failure = error
            raise
        self._has_ended = countdown.has_ended
        steps = min(steps, countdown.last_call_steps)
        if guard is not None:
            guard.after_call(logs, steps)
        timer.end_call(steps, logs, save_seconds=0.0 if guard is None else guard.save_seconds)
        if self._stop_when(timer):
            self._model.stop_training = True
        return logs


class KerasSteps:
    """Keras' own train function as a `StepRunner`; a call has as many steps as the user said."""

    def __init__(self, functions: TrainFunctions, *, numerics_check: NumericsCheck | None) -> None:
        self._functions, self._numerics_check = functions, numerics_check
        self._traced = functions.keras.train

    def run(self, iterator: Any, steps: int) -> Logs:
        """Runs one call, which has its steps whatever is wanted."""
        check = self._numerics_check
        if check is not None and check.suspects(steps):
            return check.run(iterator, steps)
        return self._functions.keras.train(iterator)  # made anew if a callback asks for it

    def trace(self, iterator: Any) -> None:
        """Traces the steps without running any."""
        self._traced.trace(iterator)

    def used_variables(self) -> Iterable[tf.Variable]:
        """Returns the variables that the steps read or write; none before `trace`."""
        return self._traced.used_variables()


class CountedSteps(StepRunnerWrapper):
    """Counts a call's steps by the optimizer: Keras' call ends with the data, and does not say."""

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
    """Returns logs of an epoch's first call even if its data end: Keras needs some."""

    def __init__(self, inner: StepRunner, *, countdown: EpochStepCounter, model: Any) -> None:
        super().__init__(inner)
        self._countdown, self._model = countdown, model

    def run(self, iterator: Any, steps: int) -> Logs:
        """Runs steps, at least one; tells the counter if the data end."""
        countdown = self._countdown
        if countdown.call_count > 1 or steps == 1:
            return self.inner.run(iterator, steps)
        before = _steps_done(self._model)
        logs = self.inner.run(iterator, 1)
        try:
            return self.inner.run(iterator, steps - 1)
        except tf.errors.OutOfRangeError:
            countdown.last_call_steps = _steps_done(self._model) - before
            countdown.has_ended = True
            return logs  # in which Keras puts the metrics' results


def _steps_done(model: Any) -> int:
    return int(model.optimizer.iterations.numpy())


class FirstBatch:
    """The first batch of a training and how long it took to come; None where it cannot be noted.

    Reading the user's data for it once more would change what a seeded shuffle gives afterwards,
    and take examples from a stream that has each but once.
    """

    def __init__(self) -> None:
        self.batch: Any = None
        self.seconds: float | None = None
        self.is_over = False


class NotingFirstBatch(StepRunnerWrapper):
    """Runs steps, the first ones on batches that have been noted."""

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
        try:  # first of all: not every structure can be given back
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
        has_more = steps > len(taken) == self._whole  # fewer were all that there are
        return self.inner.run(iterator, steps - len(taken)) if has_more else logs


class KerasFallback(StepRunnerWrapper):
    """Leaves a plan whose steps take clearly longer than Keras' own did in the trials.

    The next calls then run Keras' own steps, and stay with them if they are faster; otherwise the
    machine is slow. `note` says why the plan was left, None as long as it runs.
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
        if not self._is_first:  # which traces
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
                f"given up in the training, where its step took {slow} and Keras' own {plain}; "
                "Keras' own steps did the rest"
            )
            _LOGGER.warning("The plan was %s.", self.note)
        else:
            self._slow_seconds, self._most_seconds = None, _CLEARLY_SLOWER * slow_seconds


def _timed(run: Callable[[Any, int], Logs], iterator: Any, steps: int) -> tuple[Logs, float]:
    began = time.perf_counter()
    logs = run(iterator, steps)
    wait_for(logs)
    return logs, (time.perf_counter() - began) / steps
