"""What stands between Keras' `fit` and the steps: how many a call has, and what it returns."""

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from tfx_perf.training.keras_api.base_api import Function
from tfx_perf.training.recovery.blow_up import NumericsCheck
from tfx_perf.training.step.step_runner import Logs, StepRunner, StepRunnerWrapper
from tfx_perf.training.step.steps import Countdown
from tfx_perf.training.train_functions import TrainFunctions


class KerasSteps:
    """Keras' own train function as a `StepRunner`; a call has as many steps as the user said."""

    def __init__(
        self,
        functions: TrainFunctions,
        countdown: Countdown,
        *,
        numerics_check: NumericsCheck | None,
    ) -> None:
        """Prepares a run.

        Args:
            functions: the model's.
            countdown: of the epoch.
            numerics_check: looks into the steps; None if nobody does.
        """
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
    """Says how many steps the calls of a `fit` have.

    A callback may have it stop before the first call: Keras then runs one of the user's length.
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
        """Wraps a runner.

        Args:
            inner: the runner.
            model: whose `fit` it is.
            countdown: of the epoch.
            steps_per_call: returns the steps of a call that no epoch cuts short.
            users_steps_per_call: the `steps_per_execution` of the user's `compile`.
        """
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
    """Has the first call of an epoch return logs if the data end in it: Keras needs some.

    It is the next call that ends the epoch.
    """

    def __init__(self, inner: StepRunner, *, countdown: Countdown, optimizer: Any) -> None:
        """Wraps a runner whose data may end anywhere.

        Args:
            inner: the runner.
            countdown: of the epoch.
            optimizer: counts the steps that were run.
        """
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
