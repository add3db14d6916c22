"""StepRunner, which runs training steps, and the base class of its wrappers."""

from collections.abc import Iterable
from typing import Any, Protocol

import tensorflow as tf

from tfx_perf.training.step.steps import MultiStep

Logs = Any  # of the train function, usually a dictionary of scalars


class StepRunner(Protocol):
    """Runs the steps of a `fit`."""

    def run(self, iterator: Any, steps: int) -> Logs:
        """Runs steps, at least one; raises OutOfRangeError when data end, after whole steps."""

    def trace(self, iterator: Any) -> None:
        """Traces the steps for an iterator without running any; creates all variables."""

    def used_variables(self) -> Iterable[tf.Variable]:
        """Returns the variables that the steps read or write; none before `trace`."""


class StepRunnerWrapper:
    """Wraps the runner `inner`; a subclass changes how `inner` runs its steps."""

    def __init__(self, inner: StepRunner) -> None:
        self.inner = inner

    def run(self, iterator: Any, steps: int) -> Logs:
        """Runs steps; see `StepRunner`."""
        return self.inner.run(iterator, steps)

    def trace(self, iterator: Any) -> None:
        """Traces the steps without running any."""
        self.inner.trace(iterator)

    def used_variables(self) -> Iterable[tf.Variable]:
        """Returns the variables that the steps read or write; none before `trace`."""
        return self.inner.used_variables()


class EpochStepCounter:
    """How many steps are left in the running epoch or evaluation.

    `fit` hands the train function only an iterator; near the end of an epoch fewer steps
    than usual must be taken from it, and Keras 3 does not say how many.
    """

    def __init__(self) -> None:
        self._left: int | None = None
        self.call_count = self.last_call_steps = 0
        self.has_ended = False  # whether the data ended in the last call

    def begin(self, steps: int | None) -> None:
        """Starts an epoch or evaluation of `steps` steps; None if unknown."""
        self._left = steps
        self.call_count = 0

    def take(self, steps: int) -> int:
        """Returns the next call's steps, at least 1: Keras 3 calls until the data end."""
        taken = steps if self._left is None else max(1, min(steps, self._left))
        if self._left is not None:
            self._left -= taken
        self.call_count += 1
        self.last_call_steps, self.has_ended = taken, False
        return taken


class TracedSteps:
    """Runs a `MultiStep` as a `StepRunner`; others may run the same one at the same time."""

    def __init__(self, function: MultiStep, *, micro_batches: int = 1) -> None:
        self.micro_batches = micro_batches
        self._function = function

    def run(self, iterator: Any, steps: int) -> Logs:
        """Runs exactly `steps` steps, at least one; raises OutOfRangeError as `StepRunner`."""
        return self._function.run(iterator, steps, micro_batches=self.micro_batches)

    def trace(self, iterator: Any) -> None:
        """Traces the steps for an iterator without running any."""
        self._function.trace(iterator, micro_batches=self.micro_batches)

    def used_variables(self) -> Iterable[tf.Variable]:
        """Returns the variables that the steps read or write; none before `trace`."""
        return self._function.used_variables()
