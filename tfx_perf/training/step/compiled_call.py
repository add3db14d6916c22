"""CompiledCall: all steps of a call as an XLA loop.

In a small model, the time of a step is that of starting some three hundred operations, not of
computing them. XLA fuses them into a handful of loops. If it also compiles the loop over the
steps, weights and slots stay in its buffers from step to step.
"""

import functools
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_perf.memory.batches import tensor_bytes
from tfx_perf.tf_internals import iterators
from tfx_perf.tf_internals.graphs import QuickFunction
from tfx_perf.training.keras_api import functional_graph
from tfx_perf.training.keras_api.base_api import KerasApi, Tensors
from tfx_perf.training.step.split_step import Logs, SplitStep, format_shapes
from tfx_perf.training.step.step_runner import StepRunner, StepRunnerWrapper
from tfx_perf.training.step.steps import DataEndedError, DoneCount, MultiStep, in_replicas, repeated

Parts = list[tf.Tensor]  # of a batch

# Most bytes of batches, and of their prepared inputs, to hold at once.
_MOST_BYTES = 2**26
_HOST = "CPU:0"  # where iterators put their batches
# Layers that compute row by row, without trained weights, randomness or state that changes: for
# many batches joined into one, their result is the joined results of the batches.
_LAYERS = (
    "CategoryEncoding", "Concatenate", "Discretization", "Flatten", "HashedCrossing", "Hashing",
    "IntegerLookup", "Normalization", "Rescaling", "Reshape", "StringLookup",
)  # fmt: skip


def obstacle(model: Any, keras_api: KerasApi, spec: Any) -> str | None:
    """Returns why a model's steps cannot be compiled together, None if they may."""
    reason = keras_api.splitting_obstacle(model)
    if reason:
        return reason
    if model.distribute_strategy.num_replicas_in_sync > 1:
        return "several replicas cannot be compiled together"
    for part in tf.nest.flatten(spec):
        if not isinstance(part, tf.TensorSpec) or not part.shape.rank:
            return "the batches are not all dense tensors, with a row for each example"
    return None


class CompiledCall:
    """Takes the batches of a call, prepares all inputs at once, and runs all steps.

    The inner runner runs batches that differ in size from the others. All variables must exist
    before a run, so `trace` must be called first.
    """

    def __init__(self, model: Any, keras_api: KerasApi, *, stepwise: MultiStep) -> None:
        self.stepwise = stepwise
        # Compiled programs, in order: the shapes of the parts of all batches.
        self._shapes: dict[tuple[tuple[int, ...], ...], None] = {}
        self._keras_api = keras_api
        self._strategy = model.distribute_strategy
        self._preparation = Preparation(model, keras_api)
        self._step = SplitStep(model, keras_api, forward=self._preparation.forward)
        self._spec: Any = None
        self._step_bytes: float | None = None  # of one step's batch; unknown before the first
        self._trace_seconds = 0.0
        self._done = DoneCount()
        self.retrace()

    def retrace(self) -> None:
        """Forgets what was traced."""
        self._step.retrace()
        self._train = QuickFunction(self._trained, reduce_retracing=True)
        self._compiled = QuickFunction(self._all_steps, reduce_retracing=True, jit_compile=True)

    @property
    def done_count(self) -> int:
        """Steps that have run in compiled calls, as the graphs have counted them."""
        return self._done.total

    @property
    def compiled_shapes(self) -> tuple[str, ...]:
        """The input shapes that XLA compiled for, one program each."""
        return tuple(map(format_shapes, self._shapes))

    @property
    def trace_count(self) -> int:
        """How often the steps were traced."""
        return self._train.trace_count

    @property
    def trace_seconds(self) -> float:
        """Seconds spent in the steps' Python code, in all traces together."""
        return self._trace_seconds + self.stepwise.trace_seconds

    def one_step(self, batch: Any) -> tuple[Callable[[Any], Logs], Any]:
        """Returns the function that is compiled for one step, and its input for a batch."""
        x, y, weight = self._keras_api.unpack(batch)
        stacked = tf.nest.map_structure(lambda part: part[tf.newaxis], x)
        prepared = self._preparation.prepare(stacked)
        return self._step.run, (tf.nest.map_structure(lambda part: part[0], prepared), y, weight)

    def around(self, inner: StepRunner, *, steps_per_execution: int) -> StepRunner:
        """Returns a runner of the same steps, compiled where possible."""
        run = functools.partial(self.run, inner=inner, steps_per_execution=steps_per_execution)

        class Compiled(StepRunnerWrapper):
            def run(self, iterator: Any, steps: int) -> Logs:
                return run(iterator, steps)

        return Compiled(inner)

    def run(
        self, iterator: Any, steps: int, *, inner: StepRunner, steps_per_execution: int
    ) -> Logs:
        """Runs steps, with `inner` if batches differ in size; DataEndedError when the data end."""
        if self._spec != iterator.element_spec:
            self._spec = iterator.element_spec
            self._reader = iterators.StackedReader(self._spec)
        logs: Logs = {}
        done = 0
        while done < steps:
            length = self._length(steps_per_execution)
            wanted = min(steps - done, length)
            read = self._reader.read if wanted == length > 1 else self._reader.read_singly
            stacked, batches = read(iterator, wanted)
            if stacked:
                logs = self._run_compiled(stacked, wanted)
            elif batches:
                self._step_bytes = self._step_bytes or self._bytes_of(batches[0])
                length = self._length(steps_per_execution)
                logs = self._run_batches(batches, inner=inner, length=length)
            done += wanted if stacked else len(batches)
            if not stacked and len(batches) < wanted:
                raise DataEndedError(logs, done)
        return logs

    def _run_batches(self, batches: list[Parts], *, inner: StepRunner, length: int) -> Logs:
        """Trains on at least one batch, with `inner` if they differ in size."""
        shapes = {tuple(tuple(part.shape) for part in batch) for batch in batches}
        if len(shapes) > 1:
            return inner.run(self._iterator_over(batches), len(batches))
        # Padded to one length, so that no other length is compiled; the padding is not run.
        padded = batches + batches[-1:] * (length - len(batches))
        with tf.device(_HOST):
            stacked = [tf.stack(parts) for parts in zip(*padded, strict=True)]
        return self._run_compiled(stacked, len(batches))

    def _run_compiled(self, stacked: Parts, steps: int) -> Logs:
        self._shapes[tuple(tuple(part.shape) for part in stacked)] = None
        logs, count, _ = self._train(stacked, tf.constant(steps))
        self._done.add(count)
        return logs

    def _trained(
        self, stacked: list[tf.Tensor], steps: tf.Tensor
    ) -> tuple[Logs, tf.Tensor, list[tf.Tensor]]:
        """Trains on the first `steps` of stacked parts [batches, rows, ...].

        Returns the logs, how many steps ran, and the variables' old values. These must be held, or
        XLA takes over their buffers and frees them if memory runs out: the next use then crashes.
        """
        began = time.perf_counter()
        # Hides shapes that are unknown in single steps: Keras weighs by static batch sizes.
        stacked = [
            tf.compat.v1.placeholder_with_default(part, [part.shape[0], *spec.shape])
            for part, spec in zip(stacked, tf.nest.flatten(self._spec), strict=True)
        ]
        x, y, weight = self._keras_api.unpack(tf.nest.pack_sequence_as(self._spec, stacked))
        prepared = self._preparation.prepare(x)
        parts = prepared, y, weight
        used = self._compiled.get_concrete_function(parts, steps).variables
        held = [variable.read_value() for variable in used]
        logs, (holds, count) = self._compiled(parts, steps)
        checked = self._step.ranges.assertion(holds)
        with tf.control_dependencies([*tf.nest.flatten(logs), checked]):
            self.stepwise.count(steps)
            logs = tf.nest.map_structure(tf.identity, logs)
        self._trace_seconds += time.perf_counter() - began
        return logs, count, held

    def _all_steps(
        self, parts: Tensors, steps: tf.Tensor
    ) -> tuple[Logs, tuple[tf.Tensor, tf.Tensor]]:
        """Returns the last logs, whether Keras' `fit` would raise no error, and the step count."""

        def once(
            index: tf.Tensor, state: tuple[tf.Tensor, tf.Tensor]
        ) -> tuple[Logs, tuple[tf.Tensor, tf.Tensor]]:
            held, count = state
            # Unlike `part[index]`, for which XLA pads parts to twice their size along each axis.
            batch = tf.nest.map_structure(
                lambda part: None if part is None else tf.gather(part, index), parts
            )
            (logs, holds), _ = in_replicas(
                self._step.run_in_xla,
                (batch,),
                strategy=self._strategy,
                reduction=self._keras_api.reduction,
            )
            return logs, (held & holds, count + 1)

        return repeated(once, steps, state=(tf.constant(True), tf.constant(0)))

    def _bytes_of(self, batch: Parts) -> float:
        rows = batch[0].shape[0]
        return max(1, tensor_bytes(batch) + rows * self._preparation.row_bytes)

    def _length(self, steps_per_execution: int) -> int:
        """Returns how many batches are held at a time: one while their size is unknown."""
        most = max(1, int(_MOST_BYTES / self._step_bytes)) if self._step_bytes else 1
        return min(steps_per_execution, most)

    def _iterator_over(self, batches: list[Parts]) -> Any:
        """Returns an iterator of the data's type, so that it needs no trace of its own."""
        elements = [tf.nest.pack_sequence_as(self._spec, parts) for parts in batches]
        return iter(tf.data.Dataset.from_generator(lambda: elements, output_signature=self._spec))


class Preparation:
    """Splits a functional model after the layers that only prepare its inputs.

    These layers can run for many batches at once, because they depend neither on the weights nor on
    other rows. They contain most operations that XLA cannot compile: strings, tables, the counting
    in `CategoryEncoding`. The model is not changed; its own graph is run in two parts. `row_bytes`
    is the memory of one row of these layers' outputs.
    """

    def __init__(self, model: Any, keras_api: KerasApi) -> None:
        """Finds the layers; none in a model that does more than run its graph."""
        self._model = model
        self._keras_api = keras_api
        self._before: functional_graph.Nodes = {}
        self._after: functional_graph.Nodes = {}
        self._between: list[Any] = []
        self._running = functools.partial(functional_graph.part_of, model, keras_api)
        if functional_graph.runs_its_graph(model, keras_api):
            self._split()
        self.row_bytes = sum(
            tf.as_dtype(tensor.dtype).size * (tf.TensorShape(tensor.shape)[1:].num_elements() or 1)
            for tensor in self._between
        )

    def prepare(self, x: Tensors) -> Tensors:
        """Runs the layers on many batches at once, `x` and result of shape [batches, rows, ...]."""
        if not self._between:
            return x
        first = tf.nest.flatten(x)[0]
        batches, rows = first.shape[:2]
        joined = tf.nest.map_structure(lambda part: _reshaped(part, [-1], behind=2), x)
        with self._running(outputs=self._between, nodes=self._before):
            prepared = tf.nest.flatten(self._keras_api.forward(self._model, joined))
        batches = tf.shape(first)[0] if batches is None else batches
        front = [batches, -1 if rows is None else rows]
        return [_reshaped(part, front, behind=1) for part in prepared]

    def forward(self, prepared: Tensors) -> Tensors:
        """Calls the rest of the model on one batch from `prepare`."""
        if not self._between:
            return self._keras_api.forward(self._model, prepared)
        with self._running(inputs=self._between, nodes=self._after):
            return self._keras_api.forward(self._model, prepared)

    def _split(self) -> None:
        ready = {id(tensor): tensor for tensor in self._model.inputs}
        needed = list(self._model.outputs)
        nodes_by_depth = functional_graph.nodes_of(self._model)
        for depth in sorted(nodes_by_depth, reverse=True):
            self._before[depth], self._after[depth] = [], []
            for node in nodes_by_depth[depth]:
                layer, inputs, outputs = self._keras_api.node_parts(node)
                if node.is_input:
                    continue
                is_ready = all(id(tensor) in ready for tensor in inputs)
                if is_ready and _prepares(layer, inputs, self._keras_api):
                    self._before[depth].append(node)
                    ready.update((id(tensor), tensor) for tensor in outputs)
                else:
                    self._after[depth].append(node)
                    needed += inputs
        if any(self._before.values()):
            passed = {id(tensor): tensor for tensor in needed if id(tensor) in ready}
            self._between = list(passed.values())


def _prepares(layer: Any, inputs: list[Any], keras_api: KerasApi) -> bool:
    """Whether a layer computes each row from that row and constants only."""
    name = type(layer).__name__
    if name not in _LAYERS or type(layer) is not getattr(keras_api.layers, name, None):
        return False
    ranks = {len(tensor.shape) for tensor in inputs}
    if min(ranks, default=0) < 2:  # a vector may be one row of a multi-hot encoding
        return False
    over_rows = name == "Concatenate" and any(layer.axis % rank == 0 for rank in ranks)
    is_sparse = getattr(layer, "sparse", False)
    return not (over_rows or is_sparse or layer.trainable_weights or layer.activity_regularizer)


def _reshaped(tensor: tf.Tensor, front: list[Any], *, behind: int) -> tf.Tensor:
    rest = tensor.shape[behind:]
    if rest.is_fully_defined():
        return tf.reshape(tensor, [*front, *rest])
    return tf.reshape(tensor, tf.concat([front, tf.shape(tensor)[behind:]], axis=0))
