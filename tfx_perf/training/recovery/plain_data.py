"""Plain data: values that a file can hold, and that come back without running anything.

Numbers, words, dates, arrays, and containers of them are packed into JSON values, in which the
arrays still stand as arrays; functions of Keras by their names. Generators of random numbers, and
variables and what has some (a metric, a model), are packed by their state, which is put back into
the object that is there; a variable is made anew where there is none.
"""

import collections
import datetime
import pathlib
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.training.recovery.held_state import MAKERS, STATES

_WORDS = (type(None), bool, int, float, str)
_FRAMEWORKS = ("keras", "tf_keras", "tensorflow", "numpy")
_FACTORIES = {t.__name__: t for t in (int, float, str, bool, list, dict, set, collections.deque)}


class Opaque:
    """Stands for what cannot be packed."""

    def __init__(self, value: Any) -> None:
        """Holds the object, so that it can be told from another."""
        self.value = value


def packed(value: Any) -> Any:
    """Returns a value as it can be written, independent of what becomes of the value.

    Where something cannot be packed, an `Opaque` stands for it.
    """
    try:
        return _packed(value)
    except Exception:  # it contains itself, say, or belongs to a graph
        return Opaque(value)


def is_packed(node: Any) -> bool:
    """Whether nothing in what `packed` returned is `Opaque`."""
    if isinstance(node, dict):
        return all(map(is_packed, node.values()))
    return all(map(is_packed, node)) if isinstance(node, list) else not isinstance(node, Opaque)


def same(a: Any, b: Any) -> bool:
    """Whether two packed values are equal; NaN equals itself."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Opaque):
        return a.value is b.value
    if isinstance(a, np.ndarray):
        return (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or repr(a) == repr(b)


def unpacked(node: Any, current: Any = None) -> Any:
    """Returns the value that was packed.

    Args:
        node: what `packed` returned, also if a file held it in between.
        current: what stands where the value goes. A container that can change, and what has a
            state, is changed and returned: others may hold it too.

    Raises:
        ValueError: nothing in `current` can take a state that was packed.
    """
    if not isinstance(node, dict):
        return node
    kind, data = node["kind"], node["data"]
    if kind not in STATES:
        return _VALUES[kind][2](data, current if type(current) is _VALUES[kind][0] else None)
    recognised, _, put_back = STATES[kind]
    if not recognised(current):
        if kind in MAKERS and current is None:
            return MAKERS[kind](unpacked(data))
        raise ValueError(f"there is no {kind} to take a state, but {type(current).__name__}")
    put_back(current, unpacked(data))
    return current


def _packed(value: Any) -> Any:
    if type(value) in _WORDS:
        return value
    for kind, (recognised, read, _) in STATES.items():
        if recognised(value):
            return {"kind": kind, "data": _packed(read(value))}
    for kind, (cls, pack, _) in _VALUES.items():
        if type(value) is cls or (kind in _FAMILIES and isinstance(value, cls)):
            return {"kind": kind, "data": pack(value)}
    return Opaque(value)


def _pack_function(function: Any) -> Any:
    """Returns where a function of Keras, TensorFlow or NumPy is found; any other is opaque."""
    module = "numpy" if isinstance(function, np.ufunc) else str(function.__module__)
    name = f"{module}:{function.__name__}"
    return name if _unpack_function(name) is function else Opaque(function)


def _unpack_function(name: str) -> Any:
    module, _, attribute = name.partition(":")
    is_known = module.partition(".")[0] in _FRAMEWORKS and module in sys.modules
    return getattr(sys.modules[module], attribute, None) if is_known else None


def _pack_array(array: Any) -> list[Any]:
    array = np.array(array)
    if array.dtype.hasobject:
        raise TypeError("arrays of objects cannot be packed")
    return [array.dtype.name, array]


def _unpack_array(data: list[Any]) -> np.ndarray:
    name, array = data
    # A file does not know the types that TensorFlow adds to NumPy's, such as bfloat16.
    return array.view(tf.as_dtype(name).as_numpy_dtype) if array.dtype.kind == "V" else array.copy()


def _pack_items(items: Any) -> list[Any]:
    return [_packed(item) for item in items]


def _pack_set(items: Any) -> list[Any]:
    return sorted(_pack_items(items), key=repr)


def _pack_pairs(mapping: Any) -> list[Any]:
    return [[_packed(key), _packed(value)] for key, value in mapping.items()]


def _unpack_items(data: list[Any], current: Any) -> list[Any]:
    held = [*(current or ())][: len(data)]
    held += [None] * (len(data) - len(held))
    return [unpacked(node, old) for node, old in zip(data, held, strict=True)]


def _unpack_list(data: list[Any], current: Any) -> list[Any]:
    items = _unpack_items(data, current)
    if current is None:
        return items
    current[:] = items
    return current


def _unpack_set(data: list[Any], current: Any) -> set[Any]:
    items = set(_unpack_items(data, None))
    if current is None:
        return items
    current.clear()
    current.update(items)
    return current


def _unpack_deque(data: list[Any], current: Any) -> Any:
    length, nodes = data
    items = _unpack_items(nodes, current)
    if current is None or current.maxlen != length:
        return collections.deque(items, length)
    current.clear()
    current.extend(items)
    return current


def _unpack_pairs(data: list[Any], current: Any, *, make: Callable[[], Any]) -> Any:
    result = make() if current is None else current
    items = {}
    for key_node, node in data:
        key = unpacked(key_node)
        items[key] = unpacked(node, None if current is None else current.get(key))
    result.clear()
    for key, value in items.items():
        result[key] = value
    return result


def _pack_defaults(mapping: Any) -> list[Any]:
    factory = mapping.default_factory
    name: Any = getattr(factory, "__name__", None)
    if factory is not None and _FACTORIES.get(name) is not factory:
        return [Opaque(factory), _pack_pairs(mapping)]
    return [name, _pack_pairs(mapping)]


def _unpack_defaults(data: list[Any], current: Any) -> Any:
    name, pairs = data
    factory = _FACTORIES.get(name)
    return _unpack_pairs(pairs, current, make=lambda: collections.defaultdict(factory))


def _mapping(cls: type) -> tuple[type, Callable[[Any], Any], Callable[[Any, Any], Any]]:
    return cls, _pack_pairs, lambda data, current: _unpack_pairs(data, current, make=cls)


# The type, how a value is packed, and how it comes back, beside what stands there.
_VALUES: dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "list": (list, _pack_items, _unpack_list),
    "tuple": (tuple, _pack_items, lambda data, old: tuple(_unpack_items(data, old))),
    "set": (set, _pack_set, _unpack_set),
    "frozenset": (frozenset, _pack_set, lambda data, _: frozenset(_unpack_items(data, None))),
    "deque": (
        collections.deque,
        lambda value: [value.maxlen, _pack_items(value)],
        _unpack_deque,
    ),
    "dict": _mapping(dict),
    "OrderedDict": _mapping(collections.OrderedDict),
    "Counter": _mapping(collections.Counter),
    "defaultdict": (collections.defaultdict, _pack_defaults, _unpack_defaults),
    "array": (np.ndarray, _pack_array, lambda data, _: _unpack_array(data)),
    "scalar": (np.generic, _pack_array, lambda data, _: _unpack_array(data)[()]),
    "tensor": (
        tf.Tensor,
        lambda value: _pack_array(value.numpy()),
        lambda data, _: tf.constant(_unpack_array(data)),
    ),
    "function": (
        (types.FunctionType, types.BuiltinFunctionType, np.ufunc),
        _pack_function,
        lambda data, _: _unpack_function(data),
    ),
    "bytes": (bytes, bytes.hex, lambda data, _: bytes.fromhex(data)),
    "complex": (complex, lambda z: [z.real, z.imag], lambda data, _: complex(*data)),
    "path": (pathlib.PurePath, str, lambda data, _: pathlib.Path(data)),
    "datetime": (
        datetime.datetime,
        datetime.datetime.isoformat,
        lambda data, _: datetime.datetime.fromisoformat(data),
    ),
    "date": (
        datetime.date,
        datetime.date.isoformat,
        lambda data, _: datetime.date.fromisoformat(data),
    ),
    "time": (
        datetime.time,
        datetime.time.isoformat,
        lambda data, _: datetime.time.fromisoformat(data),
    ),
    "timedelta": (
        datetime.timedelta,
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda data, _: datetime.timedelta(*data),
    ),
}
_FAMILIES = ("scalar", "tensor", "path", "function")  # of many types, all alike
