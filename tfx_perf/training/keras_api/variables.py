"""Every variable that a training may change, by its path in the objects that hold it.

Keras lists the variables that layers made with `add_weight`. A user's `train_step` may change
others: those of a second optimizer, a raw `tf.Variable`, the state of a `tf.random.Generator`,
in attributes, containers or closures. So the objects themselves are searched.
"""

import collections
import functools
import math
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

# Attributes without state, or with state that other attributes hold under far shorter paths.
_PASSED_OVER = {
    "inputs", "outputs", "history", "train_function", "train_tf_function", "test_function",
    "predict_function", "distribute_strategy", "_distribute_strategy", "_inbound_nodes",
    "_outbound_nodes", "_inbound_nodes_value", "_outbound_nodes_value", "_nodes", "_nodes_by_depth",
    "_tracker", "_eval_epoch_iterator", "_eval_data_handler", "_saved_model_inputs_spec",
    "_steps_per_execution", "_saved_model_arg_spec",
}  # fmt: skip
_LEAVES = (str, bytes, int, float, complex, bool, type(None), type, types.ModuleType, tf.Tensor)
_LIBRARIES = frozenset({"tensorflow", "numpy", "builtins", "threading", "weakref", "_thread"})
_KERAS = frozenset({"keras", "tf_keras"})
# A layer's lists of its variables: in Keras 3, and in tf_keras.
_LISTS = (
    "_trainable_variables",
    "_non_trainable_variables",
    "_trainable_weights",
    "_non_trainable_weights",
)


def named_variables(roots: Mapping[str, Any]) -> dict[str, tf.Variable]:
    """Returns every variable reachable from the named objects, once, as `model/_layers/1/_kernel`.

    The first object that holds it gives the name; the same code gives the same paths in another
    process. Variables of Keras 3 appear as the `tf.Variable` inside.
    """
    by_path: dict[str, tf.Variable] = {}
    seen: set[int] = set()
    alive: list[Any] = []  # keeps temporary objects, so that no id is reused
    queue = collections.deque(roots.items())
    while queue:
        path, item = queue.popleft()
        if isinstance(item, _LEAVES) or id(item) in seen:
            continue
        seen.add(id(item))
        alive.append(item)
        if isinstance(item, tf.Variable):
            by_path[path] = item
        elif isinstance(item, tf.random.Generator):
            queue.append((f"{path}/state", item._state_var))
        else:
            queue.extend((f"{path}/{name}", part) for name, part in _parts(item))
    return by_path


def inner(variable: Any) -> tf.Variable:
    """Returns the `tf.Variable` inside a variable of Keras 3; any other variable as it is."""
    return getattr(variable, "_value", variable)


def innermost(variable: Any) -> tf.Variable:
    """Returns TensorFlow's own variable, also from inside a tf_keras variable that casts."""
    held = inner(variable)
    return getattr(held, "_variable", held)


def with_components(variable: tf.Variable) -> list[tf.Variable]:
    """Returns a variable and, if a strategy keeps it on several devices, each of those."""
    return [variable, *components(variable)]


def components(variable: tf.Variable) -> tuple[tf.Variable, ...]:
    """Returns a strategy's copies of a variable, one a device; empty without a strategy."""
    return tuple(getattr(variable, "values", ()))


def parameter_count(variables: Iterable[Any]) -> int:
    """Returns how many numbers variables of either Keras package hold."""
    return sum(math.prod(variable.shape) for variable in variables)


def in_order_of_creation(given: Iterable[tf.Variable]) -> list[tf.Variable]:
    """Returns variables in an order that is the same in every process of the same code."""
    return sorted(given, key=lambda each: int(each._unique_id.rpartition("_")[2]))


def _parts(item: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(item, Mapping):
        yield from ((str(key), item[key]) for key in list(item))
    elif isinstance(item, (Sequence, collections.deque)):
        yield from ((str(index), part) for index, part in enumerate(item))
    elif isinstance(item, functools.partial):
        yield from (("func", item.func), ("args", item.args), ("keywords", item.keywords))
    elif isinstance(item, types.MethodType):
        yield from (("self", item.__self__), ("function", item.__func__))
    elif isinstance(item, types.FunctionType):
        yield from _used_objects(item)
    elif _has_state(item):
        yield from _attributes(item)


def _used_objects(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yields the objects that a user's function uses: its closure, its defaults and its globals."""
    # Functions of tfx_perf replace some of a model's methods.
    if _library_of(function.__module__) in _LIBRARIES | _KERAS | {"tfx_perf"}:
        return
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not bound yet
            continue
    yield "defaults", function.__defaults__
    yield "kwdefaults", function.__kwdefaults__
    for name in code.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, (tf.Module, tf.Variable, tf.random.Generator)) or _is_keras(value):
            yield name, value


def _has_state(item: Any) -> bool:
    if isinstance(item, tf.Module):
        return True
    library = _library_of(type(item).__module__)
    is_symbolic = type(item).__name__ in {"KerasTensor", "Node", "KerasHistory", "Operation"}
    return hasattr(item, "__dict__") and library not in _LIBRARIES and not is_symbolic


def _attributes(item: Any) -> Iterator[tuple[str, Any]]:
    for name, value in list(vars(item).items()):
        if name not in _PASSED_OVER and not name.startswith("_obj_reference_counts"):
            yield name, value


def _is_keras(value: Any) -> bool:
    return any(_library_of(cls.__module__) in _KERAS for cls in type(value).__mro__[:-1])


def _library_of(module: str | None) -> str:
    return (module or "").partition(".")[0]


def lists_with(layer: Any, weight: Any) -> dict[str, list[Any]]:
    """Returns the lists of a layer that contain one of its weights, by attribute."""
    return {
        name: vars(layer)[name]
        for name in _LISTS
        if any(each is weight for each in vars(layer).get(name) or ())
    }
