"""The user's training step as a consumer of input pipelines."""

import logging
from collections.abc import Callable, Collection
from typing import Any

import tensorflow as tf

from tfx_perf import errors
from tfx_perf.input.timing import measure
from tfx_perf.interception import FitCall
from tfx_perf.memory import batches
from tfx_perf.tf_data import datasets
from tfx_perf.training import eligibility
from tfx_perf.training.fit import timer
from tfx_perf.training.loop import Loop
from tfx_perf.training.plan import PLAIN_FIT, TrainingPlan

_LOGGER = logging.getLogger(__name__)


def endless(data: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset, repeated unless it never ends anyway."""
    if data.cardinality() == tf.data.INFINITE_CARDINALITY:
        return data
    return data.repeat()


def without(element: Any, *, names: Collection[str]) -> Any:
    """Returns an element of `fit`'s data, or its spec, with some features of x left out.

    Args:
        element: `x`, `(x, y)` or `(x, y, sample_weight)`; x is a dict.
        names: keys of x.
    """
    if isinstance(element, dict):
        return {name: value for name, value in element.items() if name not in names}
    x, *others = element
    return (without(x, names=names), *others)


class TrainConsumer:
    """Trains the model of a captured `fit` on whatever dataset it is given.

    Many steps run in one call from Python, as in OptimizedTrainer, so that nothing but the
    input and the step itself is measured. Where OptimizedTrainer could not take the `fit` over,
    Keras' own train function runs step by step. The weights change: the model is of no other
    use afterwards.

    Attributes:
        batch_size: examples in a batch of the user's training, over all replicas.
        step_count: steps of the user's `fit`, None if that is not known.
        epoch_count: how often it goes through its data.
    """

    def __init__(self, call: FitCall) -> None:
        """Reads one batch of the data.

        Args:
            call: the user's `fit`, not yet run.

        Raises:
            UserError: `fit` was not given a dataset, or an empty one.
        """
        data = call.arguments["x"]
        if not isinstance(data, tf.data.Dataset):
            raise errors.UserError(
                "Expected fit to get a tf.data.Dataset. "
                f"Received: x={type(data).__name__}. Only this can be exchanged."
            )
        self._model = call.model
        self._spec = data.element_spec
        self._batch = batches.first_batch(data)
        self.batch_size = batches.batch_size_of(self._batch)
        self._loop = Loop(call)
        self.step_count = self._loop.total_length
        self.epoch_count = call.arguments["epochs"] - call.arguments["initial_epoch"]
        self._is_taken_over = eligibility.obstacle(call, self._loop) is None

    def prepare(self) -> None:
        """Trains on the batch once, which makes all variables; call it before the others."""
        if self._is_taken_over:
            self._loop.prepare()
        else:  # so that a step is a step
            self._loop.keras_api.set_steps_per_execution(self._model, 1)
        self._loop.try_out(
            self._plan(1), self.repeated_batch(), step_count=1, stop_when=lambda timer: False
        )

    def consume(self, dataset: tf.data.Dataset) -> measure.Take:
        """Returns what trains on that many batches of a new iterator; a `measure.Consumer`."""
        iterator = self._loop.iterator_over(endless(dataset))

        def take(count: int) -> None:
            turn = self._loop.turn(self._plan(count))
            for _ in range(count // turn.steps_per_call):
                logs = turn.function(iterator)
            timer.wait_for(logs)

        return take

    def repeated_batch(self) -> tf.data.Dataset:
        """Returns one batch of the user's data from memory, for ever."""
        return datasets.without_autotune(datasets.repeated(self._batch, spec=self._spec))

    def unused_features(self) -> frozenset[str]:
        """Returns the keys of x that neither training nor evaluation reads.

        Both steps are traced, and again without these keys, because a model may insist on
        an input that it does not read. Empty if x is not a dict, or if it cannot be told.
        """
        try:
            unread = self._unread(self._spec)
            if unread:
                self._unread(without(self._spec, names=unread))
        except Exception:  # whatever the user's code does, all features are then in use
            _LOGGER.info("It cannot be told which features the model reads.", exc_info=True)
            return frozenset()
        return unread

    def _plan(self, steps_per_call: int) -> TrainingPlan:
        return TrainingPlan(steps_per_call=steps_per_call) if self._is_taken_over else PLAIN_FIT

    def _unread(self, spec: Any) -> frozenset[str]:
        features: dict[str, Any] = {}
        unpack = tf.autograph.experimental.do_not_convert(self._loop.keras_api.unpack)

        def steps(batch: Any) -> Any:
            x = unpack(batch)[0]
            features.clear()
            features.update(x if isinstance(x, dict) else {})
            strategy = self._model.distribute_strategy
            return [
                strategy.run(step, args=(batch,))
                for step in (self._model.train_step, self._model.test_step)
            ]

        graph = tf.function(steps).get_concrete_function(spec).graph
        dense = {value.op for value in features.values() if isinstance(value, tf.Tensor)}
        read = _operations_with_effect(graph, ignore=lambda op: _reads_batch_size(op, dense))
        return frozenset(
            name
            for name, value in features.items()
            if not any(
                part.op in read for part in tf.nest.flatten(value, expand_composites=True)
            )
        )


def _operations_with_effect(
    graph: Any, *, ignore: Callable[[tf.Operation], bool]
) -> set[tf.Operation]:
    """Returns the operations that outputs or state depend on, but not through the ignored."""
    pending = [tensor.op for tensor in graph.outputs]
    pending += [op for op in graph.get_operations() if op.op_def.is_stateful]
    found: set[tf.Operation] = set()
    while pending:
        op = pending.pop()
        if op not in found and not ignore(op):
            found.add(op)
            pending += [tensor.op for tensor in op.inputs]
            pending += op.control_inputs
    return found


def _reads_batch_size(op: tf.Operation, features: set[tf.Operation]) -> bool:
    """Whether all that the operation takes from a feature is the length of the batch.

    Keras does so with the first feature there is, whichever it be.
    """
    return (
        op.type == "Shape"
        and op.inputs[0].op in features
        and op.inputs[0].shape[1:].is_fully_defined()
    )
