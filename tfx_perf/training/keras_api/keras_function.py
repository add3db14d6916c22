"""KerasFunction: Keras' own train or test function, with the graph function inside."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfx_perf.tf_internals import graphs


class TraceState:
    """The numbers in attributes of optimizers and random layers that tracing changes.

    tf_keras' Nadam counts how often it is traced, and a layer with a seed gives the next seed to
    each random operation that is traced. Tracing may also create more of these objects.
    """

    def __init__(self, holders: Callable[[], Iterable[Any]]) -> None:
        self._holders = holders
        self._attributes: list[tuple[Any, dict[str, int | float]]] = []
        self.read()

    def read(self) -> None:
        """Reads the numbers again."""
        self._attributes = [
            (holder, {name: n for name, n in vars(holder).items() if type(n) in (int, float)})
            for holder in self._holders()
        ]

    def read_before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function that reads the numbers again whenever it is traced.

        TensorFlow traces it twice if it creates variables, and the second trace counts. A failed
        trace does not count.
        """

        @functools.wraps(function)
        def traced(*args: Any, **kwargs: Any) -> Any:
            self.read()
            try:
                return function(*args, **kwargs)
            except Exception:
                self.restore()
                raise

        return tf.autograph.experimental.do_not_convert(traced)

    def restore(self) -> None:
        """Sets the objects' numbers to the values last read, for the next tracing."""
        for holder, attributes in self._attributes:
            vars(holder).update(attributes)


class KerasFunction:
    """Keras' `model.train_function`, to be called, or traced without being run."""

    def __init__(
        self,
        wrapped: Callable[[Any], Any],
        graph_function: Any,
        *,
        numbers: TraceState,  # as of the last trace
        execution_steps: Callable[[], Any],
    ) -> None:
        self.wrapped = wrapped
        self._graph_function = graph_function
        self.numbers = numbers
        self._execution_steps = execution_steps
        self._used: Sequence[tf.Variable] = ()
        self._operation_types: set[str] = set()  # of the steps; none before `trace`

    @property
    def is_traceable(self) -> bool:
        """Whether `trace` can trace it, so that its variables are known."""
        return self._graph_function is not None

    def __call__(self, iterator: Any) -> Any:
        """Runs the steps of one call."""
        return self.wrapped(iterator)

    def trace(self, iterator: Any) -> None:
        """Traces the steps for an iterator without running any."""
        if self._graph_function is not None:
            # In tf_keras this is a variable, but a setting rather than state of the training.
            steps = self._execution_steps()
            traced = self._graph_function.get_concrete_function(iterator)
            self._used = [variable for variable in traced.variables if variable is not steps]
            self._operation_types = graphs.operation_types(traced)

    def has_operation(self, is_kind: Callable[[str], bool]) -> bool:
        """Whether the steps have an operation of a kind, such as `graphs.hides_draws`."""
        return any(map(is_kind, self._operation_types))

    def used_variables(self) -> Sequence[tf.Variable]:
        """Returns the variables that the steps read or write; none before `trace`."""
        return self._used


class KerasFunctions(NamedTuple):
    """Keras' own functions for training and for evaluation."""

    train: KerasFunction
    test: Callable[[Any], Any]
