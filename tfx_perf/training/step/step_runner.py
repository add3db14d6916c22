"""StepRunner: what runs training steps, and what stands around it."""

from collections.abc import Iterable
from typing import Any, Protocol

import tensorflow as tf

Logs = Any  # of the train function, as a rule a dictionary of scalars


class StepRunner(Protocol):
    """Runs the steps of a `fit`."""

    def run(self, iterator: Any, steps: int) -> Logs:
        """Runs steps, at least one.

        Args:
            iterator: Keras', over the training data.
            steps: how many.

        Raises:
            OutOfRangeError: the data ended; the steps before are complete.
        """

    def take(self) -> int:
        """Returns how many steps the next call is to run, and counts them as run."""

    def trace(self, iterator: Any) -> None:
        """Traces the steps for an iterator without running any: all variables are there then."""

    def used_variables(self) -> Iterable[tf.Variable]:
        """Returns the variables that the steps read or write; none before `trace`."""


class StepRunnerWrapper:
    """Stands around another runner; a subclass changes how that runs its steps.

    Attributes:
        inner: the runner inside.
    """

    def __init__(self, inner: StepRunner) -> None:
        self.inner = inner

    def run(self, iterator: Any, steps: int) -> Logs:
        """Runs steps; see `StepRunner`."""
        return self.inner.run(iterator, steps)

    def take(self) -> int:
        """Returns how many steps the next call is to run, and counts them as run."""
        return self.inner.take()

    def trace(self, iterator: Any) -> None:
        """Traces the steps without running any."""
        self.inner.trace(iterator)

    def used_variables(self) -> Iterable[tf.Variable]:
        """Returns the variables that the steps read or write; none before `trace`."""
        return self.inner.used_variables()
