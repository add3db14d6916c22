"""Journal: the notes for running a training step again that failed half-way."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfx_perf.core import errors
from tfx_perf.training.keras_api import variables
from tfx_perf.training.keras_api.base_api import KerasApi, Tensors

_NUMBERS = itertools.count()
_HOST = "CPU:0"  # where iterators put their batches; what else is noted is small


class _Shelf:
    """Keeps tensors between graph calls, by reference: a queue made of TensorFlow's `Stage`."""

    def __init__(self) -> None:
        self._name = f"tfx_perf_journal_{next(_NUMBERS)}"
        self._dtypes = [tf.bool]

    def put(self, tensors: list[tf.Tensor]) -> tf.Operation:
        self._dtypes = [tensor.dtype for tensor in tensors]
        with tf.device(_HOST):
            return tf.raw_ops.Stage(values=tensors, shared_name=self._name)

    def take(self) -> list[tf.Tensor]:
        with tf.device(_HOST):
            return tf.raw_ops.Unstage(dtypes=self._dtypes, shared_name=self._name)

    def clear(self) -> None:
        with tf.device(_HOST):
            tf.raw_ops.StageClear(dtypes=self._dtypes, shared_name=self._name)

    def size(self) -> int:
        with tf.device(_HOST):
            return int(tf.raw_ops.StageSize(dtypes=self._dtypes, shared_name=self._name))


class _Page:
    """A replica's notes on the step that runs: its batch, and the values that it changes."""

    def __init__(self) -> None:
        self._spec: Any = None
        self.batch, self.state = _Shelf(), _Shelf()

    def write(self, batch: Tensors, state: list[tf.Tensor]) -> list[tf.Operation]:
        self._spec = tf.nest.map_structure(tf.type_spec_from_value, batch)
        return [
            self.batch.put(tf.nest.flatten(batch, expand_composites=True)),
            self.state.put([tf.constant(True), *state]),  # never empty
        ]

    def torn_out(self) -> tuple[Tensors | None, list[tf.Tensor] | None]:
        """Returns the batch and the state, each None if it is not written there."""
        batch = self.batch.take() if self.batch.size() else None
        if batch is not None:
            batch = tf.nest.pack_sequence_as(self._spec, batch, expand_composites=True)
        return batch, self.state.take()[1:] if self.state.size() else None


class Journal:
    """Notes in the graph what a step is about to change, until it has been changed.

    A step writes down its batch and the small variables that change beside the optimizer's
    (metrics, moving averages, seeds), computes its gradients, crosses the batch out, applies the
    gradients, updates the metrics (in slices: before), crosses out the rest and ticks the step
    off. So after an error the batch stands in the journal if, and only if, weights and optimizer
    are untouched.

    Of several replicas each has a page. None computes before all have written theirs, and none
    applies gradients before all have theirs.

    Nothing is copied: the tensors are only kept alive, and a variable that is assigned while
    its old value is kept gets a new buffer.
    """

    def __init__(self, model: Any, keras_api: KerasApi) -> None:
        self._model = model
        self._keras_api = keras_api
        self._variables: list[Any] = []
        self._applied = 0  # operations before the optimizer's, in the graph that is traced
        self._pages = [_Page() for _ in range(model.distribute_strategy.num_replicas_in_sync)]
        self._ticks = _Shelf()

    @property
    def is_complete(self) -> bool:
        """Whether no variable was made after the last tracing had begun."""
        known = {id(variable) for variable in self._variables}
        return all(id(each) in known for each in self._keras_api.transient_state(self._model))

    def begin_call(self) -> None:
        """Forgets the ticks of the call before; to be traced at a call's start."""
        self._ticks.clear()

    def begin(self, batch: Tensors) -> Tensors:
        """Notes the step's batch; to be traced before the step, in every replica.

        Returns the batch, which is there only once all replicas have written theirs.
        """
        context = tf.distribute.get_replica_context()
        self._variables = self._keras_api.transient_state(self._model)
        state = [tf.convert_to_tensor(variable) for variable in self._variables]
        page = self._pages[tf.get_static_value(context.replica_id_in_sync_group)]
        notes = page.write(batch, state)
        with tf.control_dependencies(context.merge_call(_of_all, args=(notes,))):
            return tf.nest.map_structure(tf.identity, batch, expand_composites=True)

    @contextlib.contextmanager
    def applying(self, results: Tensors) -> Iterator[None]:
        """Wraps the tracing of the optimizer's turn, which waits for `results` of all replicas."""
        context = tf.distribute.get_replica_context()
        computed = [t for t in tf.nest.flatten(results, expand_composites=True) if t is not None]
        crossed_out = context.merge_call(self._cross_out, args=(computed,))
        with tf.variable_creator_scope(_made_at_once), tf.control_dependencies(crossed_out):
            yield

    def end(self) -> None:
        """Ticks the step off; trace it after all of the step, but not in `applying`.

        Variables that Keras makes there would depend on the step.
        """
        tf.distribute.get_replica_context().merge_call(self._tick_off)

    @property
    def applied_steps(self) -> int:
        """How many steps of the last call are complete."""
        return self._ticks.size()

    def take_back(self) -> list[Tensors] | None:
        """Undoes the step that failed; raises HalfAppliedError if the optimizer had begun.

        Returns each replica's part of the batch; None if no step was under way.
        """
        parts, states = zip(*(page.torn_out() for page in self._pages), strict=True)
        if any(state is None for state in states):  # the data failed
            return None
        if any(part is None for part in parts):
            raise errors.HalfAppliedError(
                "A step failed while the optimizer applied its gradients; go back to a checkpoint."
            )
        for replica, state in enumerate(states):
            for variable, value in zip(self._variables, state, strict=True):
                own = variables.components(variable) or [variable] * len(states)
                own[replica].assign(value)
        return list(parts)

    def _cross_out(
        self, strategy: tf.distribute.Strategy, computed: list[Any]
    ) -> list[tf.Tensor]:
        with tf.control_dependencies(_of_all(strategy, computed)):
            found = [each for page in self._pages for each in page.batch.take()]
        self._applied = len(tf.compat.v1.get_default_graph().get_operations())
        return found

    def _tick_off(self, strategy: tf.distribute.Strategy) -> None:
        added = tf.compat.v1.get_default_graph().get_operations()[self._applied :]
        with tf.control_dependencies([op for op in added if op.op_def.is_stateful]):
            for page in self._pages:
                page.state.take()
            self._ticks.put([tf.constant(True)])


def _of_all(strategy: tf.distribute.Strategy, given: list[Any]) -> list[Any]:
    """Returns the tensors of all replicas as one list: waiting for it waits for all."""
    return [part for each in given for part in strategy.experimental_local_results(each)]


def _made_at_once(make: Callable[..., Any], **options: Any) -> Any:
    """Makes a variable that waits for nothing, so that TensorFlow can initialize it before."""
    with tf.control_dependencies(None):
        return make(**options)
