"""Recomputes activations in the backward pass instead of keeping them.

The idea is from Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016). Here it is
applied to the traced graph, for every Keras API and kind of model: stateless operations of the
forward pass are copied, the copies wait until the gradient reaches them, and the backward pass
reads the copies. Stateful operations (variables, seeds, moving averages) are not copied, so they
run once, and a recomputed mask is the same, bit for bit.
"""

from __future__ import annotations

import bisect
import dataclasses
import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pydantic

from tfx_perf.training.speedups.speedup import Fit, Speedup

if TYPE_CHECKING:
    import tensorflow as tf

_MOST_SEGMENTS = 32  # that "auto" considers


class GradientCheckpointing(Speedup):
    """The number of segments of the forward pass whose activations are recomputed.

    `auto` is the number with the least estimated memory; None keeps all activations. Recomputing
    costs time and saves memory, so the settings decide.
    """

    name = "gradient_checkpointing"
    annotation = Annotated[int, pydantic.Field(ge=2)] | Literal["auto"] | None
    off = None
    saves_memory = True

    def words(self, value: int | str) -> str:
        """Returns its name and the segments."""
        return f", gradient checkpointing ({'auto' if value == 'auto' else f'{value} segments'})"

    def obstacle(self, fit: Fit) -> str | None:
        """Returns why the step cannot be split."""
        return fit.functions.keras_api.splitting_obstacle(fit.functions.model)

    def always(self, fit: Fit) -> int | str | None:
        """Returns the value in the settings, if it is possible."""
        wanted = fit.settings.training.gradient_checkpointing
        return wanted if wanted and not self.obstacle(fit) else None

    def step_arguments(self, value: int | str) -> dict[str, Any]:
        """Returns the function that changes the traced backward pass."""
        return {"gradient_checkpointing": InSegments(value)}


@dataclasses.dataclass(frozen=True)
class Activation:
    """A tensor of the forward pass, and the positions of operations that make and last read it."""

    made: int
    last_used: int
    size: float  # in bytes, or in proportion to them
    is_saved: bool  # whether the backward pass reads it


def cut(activations: Sequence[Activation], *, segments: int | str) -> list[int]:
    """Returns where segments after the first begin; `auto` is the number of least `cost`."""
    if segments != "auto":
        return _cut(activations, int(segments))
    ways = [_cut(activations, count) for count in range(2, _MOST_SEGMENTS + 1)]
    return min(ways, key=lambda cuts: (cost(activations, cuts), len(cuts)))


def cost(activations: Sequence[Activation], cuts: Sequence[int]) -> float:
    """Returns the size held at once: what crosses a cut, and the rest of the largest segment."""
    crossing, inside = 0.0, [0.0] * (len(cuts) + 1)
    for activation in activations:
        segment = bisect.bisect_right(cuts, activation.made)
        if bisect.bisect_right(cuts, activation.last_used) > segment:
            crossing += activation.size
        elif activation.is_saved:
            inside[segment] += activation.size
    return crossing + max(inside)


def _cut(activations: Sequence[Activation], count: int) -> list[int]:
    """Cuts at about equal shares of the saved sizes, where the smallest size crosses."""
    end = 1 + max((activation.last_used for activation in activations), default=0)
    saved, crossing = [0.0] * (end + 1), [0.0] * (end + 2)
    for activation in activations:
        saved[activation.made + 1] += activation.size * activation.is_saved
        crossing[activation.made + 1] += activation.size
        crossing[activation.last_used + 1] -= activation.size
    saved = list(itertools.accumulate(saved))  # total made before each position
    crossing = list(itertools.accumulate(crossing))
    share, cuts = saved[-1] / count, set()
    for index in range(1, count):
        target = share * index
        window = range(
            max(1, bisect.bisect_left(saved, target - share / 2)),
            min(end, bisect.bisect_right(saved, target + share / 2)),
        )
        if window:
            cuts.add(min(window, key=lambda at: (crossing[at], abs(saved[at] - target))))
    return sorted(cuts)


SHAPES = {"Const", "Shape", "ShapeN", "Size", "Rank"}  # known to XLA when it compiles


def topological(operations: list[tf.Operation]) -> Iterator[tf.Operation]:
    """Yields operations after their inputs, which a loop's gradient may create later."""
    index = {operation: at for at, operation in enumerate(operations)}
    readers: dict[tf.Operation, list[tf.Operation]] = {op: [] for op in operations}
    missing = {}
    for operation in operations:
        sources = _sources(operation)
        missing[operation] = len(sources)
        for source in sources:
            readers[source].append(operation)
    ready = [index[op] for op in operations if not missing[op]]
    while ready:
        operation = operations[heapq.heappop(ready)]
        yield operation
        for reader in readers[operation]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, index[reader])


def descendants(first: tf.Operation, order: list[tf.Operation]) -> set[tf.Operation]:
    """Returns the operation and all that depend on it; `order` is topological."""
    dependent = {first}
    for operation in order:
        if not dependent.isdisjoint(_sources(operation)):
            dependent.add(operation)
    return dependent


def static(order: list[tf.Operation]) -> set[tf.Operation]:
    """Returns the operations that depend on constants and shapes only; `order` is topological."""
    constant: set[tf.Operation] = set()
    for operation in order:
        inputs = [tensor.op for tensor in operation.inputs]
        is_derived = inputs and not operation.op_def.is_stateful and constant.issuperset(inputs)
        if operation.type in SHAPES or is_derived:
            constant.add(operation)
    return constant


def _sources(operation: tf.Operation) -> set[tf.Operation]:
    return {*(tensor.op for tensor in operation.inputs), *operation.control_inputs}


_ByReference = dict[Any, Any]  # tensors, by `Tensor.ref()`

_NOT_COPIED = {*SHAPES, "Placeholder", "NoOp"}
_SMALL_BYTES = 4096
_UNKNOWN_SIZE = 256  # of a dimension, most likely the batch; only proportions count


@dataclasses.dataclass
class _Part:
    """The operations of the backward pass that read tensors of one segment, in order."""

    trigger: tf.Tensor  # a gradient that has reached the end of the segment
    readers: list[tuple[tf.Operation, int]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class InSegments:
    """Makes the backward pass of a graph recompute activations.

    Call it at the end of tracing a function that holds the forward and the backward pass of one
    step, and nothing else.

    Attributes:
        segments: the number of parts of the forward pass. Activations that cross from one part
            into another are kept, and so are those of the last part; `auto` is the number with
            the least estimated `cost`.
    """

    segments: int | str

    def __call__(self, seed: tf.Tensor, *, xla: bool) -> None:
        """Changes the graph of `seed`, with which the backward pass begins; it depends on the loss.

        If XLA compiles the graph, the copies wait behind a barrier, because XLA ignores control
        dependencies.
        """
        import tensorflow as tf

        tf.autograph.experimental.do_not_convert(_recompute)(seed, segments=self.segments, xla=xla)


def _recompute(seed: tf.Tensor, *, segments: int | str, xla: bool) -> None:
    from tfx_perf.tf_internals import graphs

    graph = _Passes(seed, segments=segments)
    for segment, part in sorted(graph.parts().items(), reverse=True):
        copies = graph.copies(segment, part, xla=xla)
        for operation, index in part.readers:
            graphs.replace_input(operation, index, copies[operation.inputs[index].ref()])


class _Passes:
    """The forward and the backward pass of a traced step."""

    def __init__(self, seed: tf.Tensor, *, segments: int | str) -> None:
        self._graph = seed.graph
        self._order = list(topological(self._graph.get_operations()))
        self._backward = descendants(seed.op, self._order)
        # Operations of the backward pass without a gradient, e.g. the slope of x² in `2 x dy`,
        # depend only on the forward pass; they are copied, too, and belong to the segment of x.
        begin = self._order.index(seed.op)
        forward = [op for op in self._order if op not in self._backward]
        self._static = static(forward)
        made_before = set(self._order[:begin])
        copied = [op for op in forward if self._is_copied(op)]
        positions = {op: at for at, op in enumerate(op for op in copied if op in made_before)}
        last_used = self._last_used(positions)
        cuts = cut(
            [
                Activation(positions[tensor.op], used, _bytes(tensor), self._is_saved(tensor))
                for tensor, used in last_used
            ],
            segments=segments,
        )
        self._last = len(cuts)
        self._segments = {op: bisect.bisect_right(cuts, at) for op, at in positions.items()}
        self._crossing = {
            tensor.ref()
            for tensor, used in last_used
            if bisect.bisect_right(cuts, used) > self._segments[tensor.op]
        }
        for op in copied:
            if op not in self._segments:
                of_inputs = [self._segments.get(t.op) for t in op.inputs if not self._is_light(t)]
                known = [segment for segment in of_inputs if segment is not None]
                self._segments[op] = max(known, default=self._last)

    def parts(self) -> dict[int, _Part]:
        by_segment: dict[int, _Part] = {}
        for operation in self._order:
            if operation not in self._backward:
                continue
            for index, tensor in enumerate(operation.inputs):
                if tensor.op in self._backward or not self._is_dropped(tensor):
                    continue
                segment = self._segments[tensor.op]
                if segment not in by_segment:
                    # This is the first reader. Copies that wait for its gradient still run before
                    # all their readers, so no operation waits for itself.
                    triggers = [t for t in operation.inputs if t.op in self._backward]
                    if not triggers:
                        continue
                    by_segment[segment] = _Part(triggers[0])
                by_segment[segment].readers.append((operation, index))
        return by_segment

    def copies(self, segment: int, part: _Part, *, xla: bool) -> _ByReference:
        """Copies the operations of a segment that the readers need."""
        from tfx_perf.tf_internals import graphs

        needed, given = self._needed(
            segment, [operation.inputs[index] for operation, index in part.readers]
        )
        copies = {tensor.ref(): tensor for tensor in given}
        if xla:  # otherwise it would merge each copy with its original
            waiting = [tensor for tensor in given if tensor.op not in self._static]
            *passed, _ = graphs.behind_barrier([*waiting, part.trigger])
            copies.update(zip((tensor.ref() for tensor in waiting), passed, strict=True))
        for operation in needed:
            with (
                self._graph.control_dependencies([part.trigger]),
                self._graph.device(operation.device),
            ):
                copy = self._graph.create_op(
                    operation.type,
                    [copies[tensor.ref()] for tensor in operation.inputs],
                    [tensor.dtype for tensor in operation.outputs],
                    attrs=dict(operation.node_def.attr),
                    op_def=operation.op_def,
                    name=f"recomputed/{operation.name}",
                )
            for tensor, again in zip(operation.outputs, copy.outputs, strict=True):
                copies.setdefault(tensor.ref(), again)
        return copies

    def _needed(
        self, segment: int, tensors: list[tf.Tensor]
    ) -> tuple[list[tf.Operation], list[tf.Tensor]]:
        """Returns the operations to copy, in order, and their inputs that are kept."""
        needed: set[tf.Operation] = set()
        given: _ByReference = {}
        pending = [tensor.op for tensor in tensors]
        while pending:
            operation = pending.pop()
            if operation in needed:
                continue
            needed.add(operation)
            for tensor in operation.inputs:
                if self._is_dropped(tensor) and self._segments[tensor.op] == segment:
                    pending.append(tensor.op)
                else:
                    given[tensor.ref()] = tensor
        return [op for op in self._order if op in needed], list(given.values())

    def _is_copied(self, operation: tf.Operation) -> bool:
        return not (
            operation.op_def.is_stateful
            or operation.type in _NOT_COPIED
            or operation in self._static
        )

    def _is_light(self, tensor: tf.Tensor) -> bool:
        return tensor.op in self._static or _bytes(tensor) <= _SMALL_BYTES

    def _is_dropped(self, tensor: tf.Tensor) -> bool:
        is_inner = self._segments.get(tensor.op, self._last) < self._last
        return is_inner and not self._is_light(tensor) and tensor.ref() not in self._crossing

    def _is_saved(self, tensor: tf.Tensor) -> bool:
        return any(op in self._backward for op in tensor.consumers())

    def _last_used(self, positions: dict[tf.Operation, int]) -> list[tuple[tf.Tensor, int]]:
        return [
            (tensor, max([at, *(positions.get(op, 0) for op in tensor.consumers())]))
            for operation, at in positions.items()
            for tensor in operation.outputs
            if not self._is_light(tensor)
        ]


def _bytes(tensor: tf.Tensor) -> float:
    if tensor.shape.rank is None or not tensor.dtype.size:
        return 0.0
    sizes = [_UNKNOWN_SIZE if size is None else size for size in tensor.shape]
    return math.prod(sizes) * tensor.dtype.size
