"""Preparation: the layers of a model that only prepare its inputs, apart from the others."""

import functools
from typing import Any

import tensorflow as tf

from tfx_perf.training.keras_api import functional_graph
from tfx_perf.training.keras_api.base_api import KerasApi, Tensors

# Without trained weights, randomness or state that changes, and row by row: of many batches
# joined to one, their result is that of the batches, joined.
_LAYERS = (
    "CategoryEncoding",
    "Concatenate",
    "Discretization",
    "Flatten",
    "HashedCrossing",
    "Hashing",
    "IntegerLookup",
    "Normalization",
    "Rescaling",
    "Reshape",
    "StringLookup",
)


class Preparation:
    """Splits a functional model behind the layers that only prepare its inputs.

    They can run for many batches at once, because they depend neither on the weights nor on other
    rows; and most operations that XLA cannot compile are among them: strings, tables, the counting
    in `CategoryEncoding`. The model is not changed; its own graph is run in two parts. `row_bytes`
    is the memory of a row of their outputs.
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
        """Calls the rest of the model on one batch of `prepare`."""
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
    """Whether a layer computes each row by itself, from nothing else that changes."""
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
    """Replaces the first `behind` dimensions by others."""
    rest = tensor.shape[behind:]
    if rest.is_fully_defined():
        return tf.reshape(tensor, [*front, *rest])
    return tf.reshape(tensor, tf.concat([front, tf.shape(tensor)[behind:]], axis=0))
