"""The layer between Keras' `fit` and the steps: how many a call has, and what it returns."""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.core import formatting
from tfx_perf.tf_internals import iterators
from tfx_perf.training.fit.timer import wait_for
from tfx_perf.training.keras_api.base_api import Function
from tfx_perf.training.optimizations.train_functions import TrainFunctions
from tfx_perf.training.recovery.blow_up import NumericsCheck
from tfx_perf.training.step.step_runner import Countdown, Logs, StepRunner, StepRunnerWrapper

_WATCHED_CALLS = 20
_CLEARLY_SLOWER = 1.2

_LOGGER = logging.getLogger(__name__)


class KerasSteps:
    """Keras' own train function as a `StepRunner`; a call has as many steps as the user said."""

    def __init__(
        self,
        functions: TrainFunctions,
        countdown: Countdown,
        *,
        numerics_check: NumericsCheck | None,
    ) -> None:
        self._steps_per_call = functions.users_steps_per_call
        self._countdown = countdown
        self._traced = functions.keras.train

        def own(iterator: Any) -> Logs:  # made anew if a callback asks for it
            return functions.keras.train(iterator)

        self._run = (
            numerics_check.around(own) if numerics_check else lambda iterator, _: own(iterator)
        )

    def run(self, iterator: Any, steps: int) -> Logs:
        """Runs one call, which has its steps whatever is wanted."""
        return self._run(iterator, steps)

    def take(self) -> int:
        """Returns how many steps of the epoch the next call runs."""
        return self._countdown.take(self._steps_per_call)

    def trace(self, iterator: Any) -> None:
        """Traces the steps without running any."""
        self._traced.trace(iterator)

    def used_variables(self) -> Iterable[tf.Variable]:
        """Returns the variables that the steps read or write; none before `trace`."""
        return self._traced.used_variables()


class CallLengths(StepRunnerWrapper):
    """Decides how many steps the calls of a `fit` have.

    If a callback stops `fit` before the first call, Keras runs one call of the user's length.
    """

    def __init__(
        self,
        inner: StepRunner,
        model: Any,
        *,
        countdown: Countdown,
        steps_per_call: Callable[[], int],
        users_steps_per_call: int,
    ) -> None:
        super().__init__(inner)
        self._model = model
        self._countdown = countdown
        self._steps_per_call = steps_per_call
        self._users_steps_per_call = users_steps_per_call

    def take(self) -> int:
        """Returns how many steps the next call is to run, and counts them as run."""
        stops = self._model.stop_training
        return self._countdown.take(self._users_steps_per_call if stops else self._steps_per_call())


class OpenEpochs(StepRunnerWrapper):
    """Returns logs of an epoch's first call even if its data end: Keras needs some."""

    def __init__(self, inner: StepRunner, *, countdown: Countdown, optimizer: Any) -> None:
        super().__init__(inner)
        self._countdown = countdown
        self._optimizer = optimizer
        self._has_ended = False

    def run(self, iterator: Any, steps: int) -> Logs:
        """Runs steps, at least one."""
        if self._has_ended:
            self._has_ended = False
            raise tf.errors.OutOfRangeError(None, None, "End of sequence")
        if self._countdown.call_count > 1 or steps == 1:
            return self.inner.run(iterator, steps)
        before = self._steps_done()
        logs = self.inner.run(iterator, 1)
        try:
            return self.inner.run(iterator, steps - 1)
        except tf.errors.OutOfRangeError:
            self._has_ended = True
            self._countdown.last_call_steps = self._steps_done() - before
            return logs  # in which Keras puts the metrics' results

    def _steps_done(self) -> int:
        return int(self._optimizer.iterations.numpy())


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
        if first.is_over:
            return self.inner.run(iterator, steps)
        first.is_over = True
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
        return self.inner.run(iterator, steps - len(taken)) if steps > len(taken) else logs


class SpeedWatch(StepRunnerWrapper):
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
            self.note = (
                "the plan was left for plain steps, because its step took "
                f"{formatting.format_seconds(slow_seconds)} and a plain one "
                f"{formatting.format_seconds(seconds)}"
            )
            _LOGGER.warning("%s.", self.note.capitalize())
        else:
            self._slow_seconds, self._most_seconds = None, _CLEARLY_SLOWER * slow_seconds


def _timed(run: Callable[[Any, int], Logs], iterator: Any, steps: int) -> tuple[Logs, float]:
    began = time.perf_counter()
    logs = run(iterator, steps)
    wait_for(logs)
    return logs, (time.perf_counter() - began) / steps


def train_function(runner: StepRunner) -> Function:
    """Returns a train function for Keras: every variable is there before the first step."""
    is_first = True

    def call(iterator: Any) -> Any:
        nonlocal is_first
        if is_first:
            runner.trace(iterator)
        is_first = False
        return runner.run(iterator, runner.take())

    return call
