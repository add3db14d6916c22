"""The layers of a model in the order in which they run, the memory of each, and where to cut.

A chain is cut so that its parts fit devices and few bytes go between them.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfx_perf.training.keras_api import slots, variables
from tfx_perf.training.keras_api.base_api import KerasApi, NodeParts, optimizers
from tfx_perf.training.keras_api.functional_graph import graph_of, nodes_of

_Cost = tuple[int, float]  # bytes that cross, and how full the fullest device is, 0-1


@dataclasses.dataclass(frozen=True)
class Link:
    """The output of a layer to others (by index), in bytes for each device that has any of them."""

    source: int
    targets: frozenset[int]
    bytes: int


@dataclasses.dataclass(frozen=True, eq=False)  # compared by identity
class PlacedLayer:
    """A layer, with the variables (at its first call) and bytes that its device has to hold.

    `activation_bytes` are those of outputs and their gradients; those that a layer keeps inside
    for the backward pass are not known.
    """

    layer: Any
    variables: tuple[tf.Variable, ...]
    weight_bytes: int
    gradient_bytes: int
    slot_bytes: int
    activation_bytes: int

    @property
    def bytes(self) -> int:
        """All bytes that the layer takes of its device."""
        return self.state_bytes + self.activation_bytes

    @property
    def state_bytes(self) -> int:
        """The bytes that do not depend on the batch."""
        return self.weight_bytes + self.gradient_bytes + self.slot_bytes


@dataclasses.dataclass(frozen=True)
class LayerChain:
    """A model's layers, one for each call, in the order in which they run.

    A subclassed model hides that order: its layers come as it lists them, with links of one byte.
    """

    layers: tuple[PlacedLayer, ...]
    links: tuple[Link, ...]
    are_links_known: bool

    def without_state_of(self, layers: Sequence[PlacedLayer]) -> "LayerChain":
        """Returns the chain without the weights of some layers, which are placed elsewhere."""

        def left(layer: PlacedLayer) -> PlacedLayer:
            if layer not in layers:
                return layer
            return dataclasses.replace(
                layer, variables=(), weight_bytes=0, gradient_bytes=0, slot_bytes=0
            )

        return dataclasses.replace(self, layers=tuple(map(left, self.layers)))


def chain_of(model: Any, keras_api: KerasApi, *, batch_size: int) -> LayerChain:
    """Returns a built model's layers, those of inner models too; unknown dimensions count as 1."""
    slots_by_id = _kept_by_optimizers(model)
    placed: set[int] = set()
    layers = []
    calls = list(_calls(model, keras_api))
    for call in calls:
        weights, trained = _weights(call.layer)
        new = [variable for variable in weights if id(variable) not in placed]
        placed |= set(map(id, new))
        new_slots = [slot for variable in new for slot in slots_by_id.get(id(variable), ())]
        layers.append(
            PlacedLayer(
                call.layer,
                tuple(map(variables.innermost, (*new, *new_slots))),
                weight_bytes=sum(map(_size, new)),
                gradient_bytes=sum(_size(each) for each in new if id(each) in trained),
                slot_bytes=sum(map(_size, new_slots)),
                activation_bytes=2 * sum(_size(each, batch_size) for each in call.outputs),
            )
        )
    is_known = graph_of(model) is not None
    unknown = (Link(index, frozenset({index + 1}), 1) for index in range(len(calls) - 1))
    links = _links(calls, batch_size) if is_known else unknown
    return LayerChain(tuple(layers), tuple(links), is_known)


def _calls(
    model: Any, keras_api: KerasApi, names: dict[int, Any] | None = None
) -> Iterator[NodeParts]:
    """Yields the calls of layers, also in inner models; `names`: outer tensors by inner ids."""
    graph = graph_of(model)
    if graph is None:
        yield from (NodeParts(layer, [], []) for layer in model.layers)
        return
    names = {} if names is None else names
    depths = nodes_of(graph)
    for node in (node for depth in sorted(depths, reverse=True) for node in depths[depth]):
        layer, inputs, outputs = keras_api.node_parts(node)
        inputs = [names.get(id(tensor), tensor) for tensor in inputs]
        inside = graph_of(layer)
        if inside is None and inputs:  # without inputs, it is an input itself
            yield NodeParts(layer, inputs, outputs)
        elif inside is not None:
            flat_inputs, _, flat_outputs, _ = keras_api.graph_attributes
            names |= zip(map(id, getattr(inside, flat_inputs)), inputs, strict=True)
            yield from _calls(inside, keras_api, names)
            given = [names.get(id(each), each) for each in getattr(inside, flat_outputs)]
            names |= zip(map(id, outputs), given, strict=True)


def _links(calls: Sequence[NodeParts], batch_size: int) -> Iterator[Link]:
    """Yields the links of outputs between calls, and of their gradients back."""
    sources = {id(tensor): index for index, call in enumerate(calls) for tensor in call.outputs}
    targets: dict[int, set[int]] = {}
    for index, call in enumerate(calls):
        for tensor in call.inputs:
            targets.setdefault(id(tensor), set()).add(index)
    for call in calls:
        for tensor in call.outputs:
            taken = targets.get(id(tensor))
            if taken:
                ways = 2 if tf.as_dtype(tensor.dtype).is_floating else 1
                size = ways * _size(tensor, batch_size)
                yield Link(sources[id(tensor)], frozenset(taken), size)


def _weights(layer: Any) -> tuple[list[tf.Variable], set[int]]:
    if not hasattr(layer, "weights"):  # an operation of Keras 3
        return [], set()
    trained = {id(variables.inner(weight)) for weight in layer.trainable_weights}
    return [variables.inner(weight) for weight in layer.weights], trained


def _kept_by_optimizers(model: Any) -> dict[int, list[tf.Variable]]:
    slots_by_id: dict[int, list[tf.Variable]] = {}
    for optimizer in optimizers(model):
        slot_lists = slots.by_variable(optimizer, model.trainable_variables)
        for variable, values in zip(model.trainable_variables, slot_lists, strict=True):
            of_variable = slots_by_id.setdefault(id(variables.inner(variable)), [])
            of_variable.extend(map(variables.inner, values))
    return slots_by_id


def _size(tensor: Any, batch_size: int = 1) -> int:
    if tensor.shape is None or getattr(tensor.shape, "rank", 0) is None:
        return 0
    first, *others = [*tensor.shape] or [1]
    return (first or batch_size) * math.prod(each or 1 for each in others) * (
        tf.as_dtype(tensor.dtype).size
    )


def assigned(
    sizes: Sequence[int], links: Sequence[Link], *, capacities: Sequence[int]
) -> list[int] | None:
    """Returns the device of each layer, None if they do not fit; a device has consecutive layers.

    Sizes and capacities are bytes, in the order in which layers run and devices fill. Of the
    fitting assignments it returns one with the fewest crossing bytes; of these, the one whose
    fullest device is the least full. The dynamic program for contiguous parts of a chain is
    Bokhari's (Partitioning Problems in Parallel, Pipelined, and Distributed Computing, IEEE
    Transactions on Computers 37, 1988), with bytes instead of seconds, in O(devices · layers²).
    """
    count = len(sizes)
    crossing = _crossing(count, links)
    best: list[_Cost | None] = [(0, 0.0)] + [None] * count
    begins: list[list[int]] = []  # by device and number of layers: where its part begins
    for capacity in capacities:
        costs: list[_Cost | None] = [None] * (count + 1)
        begin_of = [0] * (count + 1)
        for begin, before in enumerate(best):
            if before is None:
                continue
            held = 0
            for end in range(begin, count + 1):
                held += sizes[end - 1] if end > begin else 0
                if held > capacity:
                    break
                cost = before[0] + crossing[begin][end], max(before[1], held / capacity)
                lowest = costs[end]
                if lowest is None or cost < lowest:
                    costs[end], begin_of[end] = cost, begin
        best = costs
        begins.append(begin_of)
    if best[count] is None:
        return None
    devices: list[int] = []
    for device in reversed(range(len(capacities))):
        begin = begins[device][count]
        devices[:0] = [device] * (count - begin)
        count = begin
    return devices


def crossing_bytes(links: Sequence[Link], devices: Sequence[int]) -> int:
    """Returns the bytes that go from one device to another; once to each that takes them."""
    return sum(
        link.bytes * len({devices[target] for target in link.targets} - {devices[link.source]})
        for link in links
    )


def _crossing(count: int, links: Sequence[Link]) -> list[list[int]]:
    """Returns, by begin and end of a part, the bytes that come into it from earlier layers."""
    crossing = [[0] * (count + 1) for _ in range(count + 1)]
    for begin in range(count):
        # A link comes in with the first of its targets that is in the part.
        added = [0] * count
        for link in links:
            first = min((t for t in link.targets if t >= begin), default=math.inf)
            if link.source < begin and first < math.inf:
                added[int(first)] += link.bytes
        for end in range(begin, count):
            crossing[begin][end + 1] = crossing[begin][end] + added[end]
    return crossing
