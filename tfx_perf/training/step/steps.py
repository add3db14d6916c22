"""Train and test functions that run many steps for one call from Python.

They replace Keras' own in `model.train_function` and `model.test_function`: everything else
in `fit` (epochs, callbacks, validation, History) remains Keras'.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tfx_perf.tf_internals.graphs import QuickFunction
from tfx_perf.training.keras_api import constant_shapes
from tfx_perf.training.keras_api.base_api import KerasApi, Tensors
from tfx_perf.training.replicas import strategies
from tfx_perf.training.step.split_step import Logs, SplitStep

_MOST_COUNTS = 1000  # calls whose step counts are kept before they are added up


class DataEndedError(tf.errors.OutOfRangeError):
    """The data ended in a call after some steps, maybe none; it has their number and last logs."""

    def __init__(self, logs: Logs, steps: int) -> None:
        super().__init__(None, None, "End of sequence")
        self.logs, self.steps = logs, steps


def in_replicas(
    step: Callable[..., Any],
    arguments: tuple[Any, ...],
    *,
    strategy: tf.distribute.Strategy,
    reduction: str,
) -> tuple[Any, tf.Tensor]:
    """Traces a step in every replica, and reduces its logs by `MEAN` or `SUM` over this worker's.

    Returns the logs, which may be empty, and a constant. Both are available only after all
    operations of the step that have side effects.
    """
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    logs = strategies.of_replicas(strategy, strategy.run(step, args=arguments), reduction=reduction)
    added = graph.get_operations()[before:]
    with tf.control_dependencies([op for op in added if op.op_def.is_stateful]):
        return tf.nest.map_structure(tf.identity, logs), tf.constant(True)


def repeated(
    step: Callable[[tf.Tensor, Tensors], tuple[Tensors, Tensors]],
    times: tf.Tensor,
    *,
    state: Tensors = (),
    may_continue: Callable[[Tensors], tf.Tensor] | None = None,
) -> tuple[Tensors, Tensors]:
    """Runs a step several times in sequence; returns the last results and state.

    It runs at least once, or as long as the state `may_continue`. A loop in a graph must know what
    its body returns before the body is traced. So the step, whose arguments are the number of steps
    before it and their state, is a function that is inlined.
    """
    with constant_shapes.in_a_loop():
        function = QuickFunction(step).get_concrete_function(tf.constant(0), state)

    def body(done: tf.Tensor, last: tuple[Tensors, Tensors]) -> tuple[tf.Tensor, Any]:
        # If the data end in this step, the one before must still complete.
        with tf.control_dependencies(tf.nest.flatten(last, expand_composites=True)):
            return done + 1, function(done, last[1])

    results, _ = function.structured_outputs
    if all(result.shape.is_fully_defined() for result in tf.nest.flatten(results)):
        zeros = tf.nest.map_structure(lambda each: tf.zeros(each.shape, each.dtype), results)
        begin = tf.constant(0), (zeros, state)
    elif may_continue is not None:
        raise ValueError(f"Expected results whose shapes are known. Received: {results}.")
    else:
        begin = tf.constant(1), function(tf.constant(0), state)

    def condition(done: tf.Tensor, last: tuple[Tensors, Tensors]) -> tf.Tensor:
        is_left = done < times
        return is_left if may_continue is None else is_left & may_continue(last[1])

    return tf.while_loop(condition, body, begin)[1]


class DoneCount:
    """Adds up the steps of calls, as their graphs have counted them."""

    def __init__(self) -> None:
        self._total = 0
        self._counts: list[Any] = []  # not added yet: a device may still compute the last

    def add(self, count: Any) -> None:
        """Adds a call's steps, a number or a scalar tensor."""
        self._counts.append(count)
        if len(self._counts) >= _MOST_COUNTS:
            self._total = self.total

    @property
    def total(self) -> int:
        """The sum of all steps added."""
        self._total += sum(map(int, self._counts))
        self._counts.clear()
        return self._total


class MultiStep:
    """Runs a step several times on an iterator in one graph call.

    It is traced once for all runners; see `TracedSteps`. Results of metrics are computed only
    after the last step, because tf_keras sums counts over replicas for each of them.
    """

    def __init__(
        self, model: Any, keras_api: KerasApi, *, method: str, split: SplitStep | None = None
    ) -> None:
        """Prepares `train_step` or `test_step` of a model, or `split` in its place."""
        self.trace_seconds = 0.0  # in the steps' Python code, in all traces together
        self._done = DoneCount()
        self._used: Sequence[tf.Variable] = ()
        self._graph: tf.Graph | None = None
        self._model = model
        self._keras_api = keras_api
        self._method, self._split = method, split
        self._strategy = model.distribute_strategy
        self._counter = keras_api.step_counter(model, method)
        self._has_own_logs = keras_api.has_own_logs(model, method)
        self.retrace()

    def retrace(self) -> None:
        """Forgets what was traced."""
        if self._split is not None:
            self._split.retrace()
        self._step: Callable[..., Logs] = (
            getattr(self._model, self._method) if self._split is None else self._split.run
        )
        self._function = QuickFunction(self._run, reduce_retracing=True)

    def trace(self, iterator: Any, *, micro_batches: int = 1, may_end: bool = False) -> None:
        """Traces the steps without running any or taking a batch; makes all their variables."""
        arguments = iterator, tf.constant(1, tf.int32), may_end, *_slicing(micro_batches)
        traced = self._function.get_concrete_function(*arguments)
        self._used, self._graph = traced.variables, traced.graph

    @property
    def operation_count(self) -> int:
        """About how many operations the graph of a step has; 0 before `trace`."""
        if self._graph is None:
            return 0
        definition = self._graph.as_graph_def()
        return len(definition.node) + sum(
            len(function.node_def) for function in definition.library.function
        )

    def used_variables(self) -> Sequence[tf.Variable]:
        """Returns the variables that the steps read or write; none before `trace`."""
        return self._used

    @property
    def compiled_shapes(self) -> tuple[str, ...] | None:
        """The input shapes that XLA compiled for, formatted; None without XLA."""
        shapes = None if self._split is None else self._split.compiled_shapes
        return None if shapes is None else tuple(shapes)

    @property
    def trace_count(self) -> int:
        """How often the steps were traced: about once for each shape of the batches."""
        return self._function.trace_count

    @property
    def done_count(self) -> int:
        """Steps that have run here, as the graphs have counted them."""
        return self._done.total

    def run(
        self, iterator: Any, steps: int, *, micro_batches: int = 1, may_end: bool = False
    ) -> Logs:
        """Runs exactly `steps` steps, at least one; raises OutOfRangeError when the data end.

        It is a DataEndedError if they `may_end`: then no step begins for which there is no batch.
        """
        logs, done = self._function(
            iterator, tf.constant(steps, tf.int32), may_end, *_slicing(micro_batches)
        )
        self._done.add(done)
        if may_end and int(done) < steps:
            raise DataEndedError(logs, int(done))
        return logs

    def count(self, steps: tf.Tensor) -> None:
        """Counts steps in Keras' counter for its callbacks."""
        if self._counter is not None:
            self._counter.assign_add(tf.cast(steps, self._counter.dtype))

    def _run(
        self, iterator: Any, steps: tf.Tensor, may_end: bool, *slicing: tf.Tensor
    ) -> tuple[Logs, tf.Tensor]:
        began = time.perf_counter()  # all of this runs only while it is traced
        strategy, reduction = self._strategy, self._keras_api.reduction

        def step(index: tf.Tensor, state: Tensors) -> tuple[Logs, Tensors]:
            count, following = state
            batch = following.get_value() if may_end else next(iterator)
            with contextlib.ExitStack() as undo:
                if not self._has_own_logs:
                    undo.enter_context(self._keras_api.without_results(self._model))
                logs, done = in_replicas(
                    self._step, (batch, *slicing), strategy=strategy, reduction=reduction
                )
            with tf.control_dependencies([done]):
                return logs, (count + 1, taken(count + 1) if may_end else ())

        def taken(count: tf.Tensor) -> tf.experimental.Optional:
            nothing = tf.experimental.Optional.empty(iterator.element_spec)
            return tf.cond(count < steps, iterator.get_next_as_optional, lambda: nothing)

        first = iterator.get_next_as_optional() if may_end else ()
        logs, (count, _) = repeated(
            step,
            steps,
            state=(tf.constant(0), first),
            may_continue=(lambda state: state[1].has_value()) if may_end else None,
        )
        with tf.control_dependencies([count]):
            if self._has_own_logs:  # reduced over all workers, which wait here
                logs = strategies.of_workers(strategy, logs, reduction=reduction)
            else:
                logs = self._model.get_metrics_result()
        with tf.control_dependencies([count, *tf.nest.flatten(logs)]):
            self.count(count)
        self.trace_seconds += time.perf_counter() - began
        return logs, count


def _slicing(micro_batches: int) -> tuple[tf.Tensor, ...]:
    # Given as a tensor, so that one trace serves for every number but 1.
    return () if micro_batches == 1 else (tf.constant(micro_batches),)
