"""Graphs: traced quickly, changed, and read."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.framework import convert_to_constants, op_def_registry
from tensorflow.python.tools import saved_model_utils

SAVED_MODEL_CLI = "tensorflow.python.tools.saved_model_cli"
"""The module to start with `python -m` for TensorFlow's `saved_model_cli`."""


class QuickFunction:
    """Compiles a function without AutoGraph, or with it if it cannot be traced otherwise.

    That is an order of magnitude faster than Keras 2's tracing (taxi template: 0.8 s against 10.6 s
    for the same 483-node graph), and safe: what needs AutoGraph (a Python `if`, `while`, `for` or
    `assert` on a symbolic tensor) raises while it is traced, and a failed trace changes nothing.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        converted: Callable[..., Any] | None = None,
        **options: Any,
    ) -> None:
        """Takes the function to use with AutoGraph, if that is another one."""
        self._converted: Callable[..., Any] | None = tf.function(converted or function, **options)
        self._compiled = tf.function(function, **{**options, "autograph": False})

    @property
    def trace_count(self) -> int:
        """How often the function was traced."""
        return self._compiled.experimental_get_tracing_count()

    def get_concrete_function(self, *args: Any) -> Any:
        """Traces the function for these arguments, as `tf.function`'s does."""
        return self._quickly(lambda: self._compiled.get_concrete_function(*args))

    def compiler_ir(self, *args: Any) -> Callable[..., Any]:
        """Returns a reader of XLA's program for these arguments, as `tf.function` does."""
        return self._quickly(lambda: self._compiled.experimental_get_compiler_ir(*args))

    def __call__(self, *args: Any) -> Any:
        """Calls the compiled function, which is traced if need be."""
        return self._quickly(lambda: self._compiled(*args))

    def _quickly(self, use: Callable[[], Any]) -> Any:
        try:
            return use()
        except tf.errors.OpError:  # it was traced, and failed or ran out of data when it ran
            raise
        except Exception:
            if self._converted is None:
                raise
            self._compiled, self._converted = self._converted, None
            return use()


def is_graph_function(function: Any) -> bool:
    """Returns whether an object was returned by `tf.function`."""
    return hasattr(function, "python_function") and hasattr(function, "get_concrete_function")


def replace_input(operation: tf.Operation, index: int, tensor: tf.Tensor) -> None:
    """Has an operation read another tensor of the traced graph, of the same type and shape."""
    operation._update_input(index, tensor)


def behind_barrier(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the tensors behind a barrier: XLA sees only that each depends on all."""
    return gen_xla_ops.xla_optimization_barrier(tensors)


def operation_types(function: Any) -> set[str]:
    """Returns the types of a function's operations, those of the functions that it calls too."""
    graph = function.graph
    types = {operation.type for operation in graph.get_operations()}
    for called in graph._functions.values():
        types.update(node.op for node in called.cached_definition.node_def)
    return types


def is_python(operation_type: str) -> bool:
    """Whether an operation calls a Python function."""
    return operation_type in ("PyFunc", "PyFuncStateless", "EagerPyFunc")


def is_writer(operation_type: str) -> bool:
    """Whether an operation writes a file: `tf.io.write_file`, or those of `tf.summary`."""
    return operation_type.startswith("Write") and operation_type.endswith(("File", "Summary"))


def hides_draws(operation_type: str) -> bool:
    """Whether an operation draws numbers that cannot be counted, as `tf.random.uniform` does."""
    op_def = op_def_registry.get(operation_type)
    if op_def is None or not op_def.is_stateful:
        return False
    return "seed2" in {attribute.name for attribute in op_def.attr}


def with_constants(function: Any) -> Callable[..., Any]:
    """Returns a function of flat tensors, by sorted names, with its variables as constants."""
    return convert_to_constants.convert_variables_to_constants_v2(function)


def signatures(folder: str) -> Any:
    """Returns the `SignatureDef`s of a SavedModel for serving, by name; it is not loaded."""
    return saved_model_utils.get_meta_graph_def(folder, "serve").signature_def
