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

    def __init__(self, *, extra_steps: int = 0) -> None:
        """Begins nothing; a later epoch may have this many steps more than the first one."""
        self._left: int | None = None
        self._is_limited, self._extra_steps = False, extra_steps
        self.call_count = self.last_call_steps = 0
        self.has_ended = False  # whether the data ended in the last call
        self.done = 0  # steps of the epoch, once the last call has ended
        self.first_length: int | None = None  # of the first epoch that the data have ended

    def begin(self, steps: int | None) -> None:
        """Starts an epoch or evaluation of `steps` steps; None if unknown."""
        limit = None if self.first_length is None else self.first_length + self._extra_steps
        self._is_limited = steps is None and limit is not None
        self._left = limit if steps is None else steps
        self.call_count = self.done = 0
        self.has_ended = False

    def take(self, steps: int) -> int:
        """Returns the next call's steps, at least 1: Keras 3 calls until the data end."""
        if self._is_limited and self._left == 0 and not self.has_ended:
            raise tf.errors.OutOfRangeError(None, None, "This epoch is longer than the first one.")
        taken = steps if self._left is None else max(1, min(steps, self._left))
        if self._left is not None:
            self._left -= taken
        self.call_count += 1
        self.done += taken
        self.last_call_steps, self.has_ended = taken, False
        return taken

    @property
    def is_last(self) -> bool:
        """Whether Keras makes no other call in the epoch; the first one is not the last."""
        return self._left == 0 and not self._is_limited and self.call_count > 1

    def end_early(self, *, steps: int, asked: int) -> None:
        """Corrects the last call, in which the data ended after fewer steps than were asked for."""
        self.done -= asked - steps
        self.last_call_steps, self.has_ended = steps, True
        self.first_length = self.first_length or self.done


class TracedSteps:
    """Runs a `MultiStep` as a `StepRunner`; others may run the same one at the same time."""

    def __init__(
        self, function: MultiStep, *, micro_batches: int = 1, may_end: bool = False
    ) -> None:
        self._function = function
        self._options: dict[str, Any] = {"micro_batches": micro_batches, "may_end": may_end}

    def run(self, iterator: Any, steps: int) -> Logs:
        """Runs exactly `steps` steps, at least one; see `MultiStep.run`."""
        return self._function.run(iterator, steps, **self._options)

    def trace(self, iterator: Any) -> None:
        """Traces the steps for an iterator without running any."""
        self._function.trace(iterator, **self._options)

    def used_variables(self) -> Iterable[tf.Variable]:
        """Returns the variables that the steps read or write; none before `trace`."""
        return self._function.used_variables()
