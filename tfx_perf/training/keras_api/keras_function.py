"""KerasFunction: Keras' own train or test function, with the graph function inside."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfx_perf.tf_internals import graphs
from tfx_perf.training.keras_api.traced_numbers import TracedNumbers


class KerasFunction:
    """What Keras keeps in `model.train_function`, to be called, or traced without being run.

    Attributes:
        own: as Keras made it.
        numbers: as they were when it was traced last.
        hides_draws: see `graphs.hides_draws`; not before `trace`.
    """

    def __init__(
        self,
        own: Callable[[Any], Any],
        graph_function: Any,
        *,
        numbers: TracedNumbers,
        execution_steps: Callable[[], Any],
    ) -> None:
        """Wraps a function.

        Args:
            own: takes an iterator and returns logs.
            graph_function: what `own` runs on the iterator, a `tf.function` or `QuickFunction`;
                None if there is none.
            numbers: as they were when it was traced last.
            execution_steps: see `KerasApi.execution_steps`, for the model.
        """
        self.own = own
        self._graph_function = graph_function
        self.numbers = numbers
        self._execution_steps = execution_steps
        self._used: Sequence[tf.Variable] = ()
        self.hides_draws = False

    def __call__(self, iterator: Any) -> Any:
        """Runs the steps of one call."""
        return self.own(iterator)

    def trace(self, iterator: Any) -> None:
        """Traces the steps for an iterator without running any."""
        if self._graph_function is not None:
            # A variable in tf_keras: a setting, no state of the training.
            steps = self._execution_steps()
            traced = self._graph_function.get_concrete_function(iterator)
            self._used = [variable for variable in traced.variables if variable is not steps]
            self.hides_draws = graphs.hides_draws(traced)

    def used_variables(self) -> Sequence[tf.Variable]:
        """Returns the variables that the steps read or write; none before `trace`."""
        return self._used


class KerasFunctions(NamedTuple):
    """Keras' own functions for training and for evaluation."""

    train: KerasFunction
    test: KerasFunction
