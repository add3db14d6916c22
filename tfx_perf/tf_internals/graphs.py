"""Changes to a graph that has been traced, or to what a saved model's calls."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.framework import convert_to_constants, op_def_registry
from tensorflow.python.tools import saved_model_utils

SAVED_MODEL_CLI = "tensorflow.python.tools.saved_model_cli"
"""The module to start with `python -m` for TensorFlow's `saved_model_cli`."""


def replace_input(operation: tf.Operation, index: int, tensor: tf.Tensor) -> None:
    """Has an operation read another tensor.

    Args:
        operation: of a graph that is being traced.
        index: of the input.
        tensor: of the same graph, type and shape.
    """
    operation._update_input(index, tensor)


def behind_barrier(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the tensors, of which XLA sees only that each depends on all."""
    return gen_xla_ops.xla_optimization_barrier(tensors)


def hides_draws(function: Any) -> bool:
    """Whether a concrete function draws random numbers that its operations themselves count.

    So does `tf.random.uniform`: it has a seed, and nobody can read or set how far it is.
    """
    graph = function.graph
    kinds = {operation.type for operation in graph.get_operations()}
    for called in graph._functions.values():
        kinds.update(node.op for node in called.cached_definition.node_def)
    return any(map(_hides_draws, kinds))


def _hides_draws(kind: str) -> bool:
    found = op_def_registry.get(kind)
    if found is None or not found.is_stateful:
        return False
    return "seed2" in {attribute.name for attribute in found.attr}


def with_constants(function: Any) -> Callable[..., Any]:
    """Returns a concrete function with the values of its variables in their place.

    Its inputs are tensors, and its results flat, both in the order of their sorted names.
    """
    return convert_to_constants.convert_variables_to_constants_v2(function)


def signatures(folder: str) -> Any:
    """Returns the `SignatureDef`s of a SavedModel for serving, by name; it is not loaded."""
    return saved_model_utils.get_meta_graph_def(folder, "serve").signature_def
