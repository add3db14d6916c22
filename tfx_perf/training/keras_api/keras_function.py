"""KerasFunction: Keras' own train or test function, with the graph function inside."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf


class KerasFunction:
    """What Keras keeps in `model.train_function`, to be called, or traced without being run.

    Attributes:
        own: as Keras made it.
    """

    def __init__(
        self,
        own: Callable[[Any], Any],
        graph_function: Any,
        *,
        execution_steps: Callable[[], Any],
    ) -> None:
        """Wraps a function.

        Args:
            own: takes an iterator and returns logs.
            graph_function: what `own` runs on the iterator, a `tf.function` or `QuickFunction`;
                None if there is none.
            execution_steps: see `KerasApi.execution_steps`, for the model.
        """
        self.own = own
        self._graph_function = graph_function
        self._execution_steps = execution_steps
        self._used: Sequence[tf.Variable] = ()

    def __call__(self, iterator: Any) -> Any:
        """Runs the steps of one call."""
        return self.own(iterator)

    def trace(self, iterator: Any) -> None:
        """Traces the steps for an iterator without running any."""
        if self._graph_function is not None:
            # A variable in tf_keras: a setting, no state of the training.
            steps = self._execution_steps()
            used = self._graph_function.get_concrete_function(iterator).variables
            self._used = [variable for variable in used if variable is not steps]

    def used_variables(self) -> Sequence[tf.Variable]:
        """Returns the variables that the steps read or write; none before `trace`."""
        return self._used


class KerasFunctions(NamedTuple):
    """Keras' own functions for training and for evaluation."""

    train: KerasFunction
    test: KerasFunction
