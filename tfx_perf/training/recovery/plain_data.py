"""Plain data: values that a file can hold, and that come back without running anything.

Numbers, words, dates, arrays, tensors, and containers of them are packed into JSON values, in which
arrays remain arrays. Objects with a state (a generator of random numbers, a variable, a metric or a
model with its variables) are packed as that state, which is put back into the existing object.
"""

import collections
import datetime
import hashlib
import itertools
import json
import pathlib
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

_WORDS = (type(None), bool, int, float, str)
_FACTORIES = {t.__name__: t for t in (int, float, str, bool, list, dict, set, collections.deque)}


class Opaque:
    """A value that cannot be packed; `node` has its packable parts, to see whether they change."""

    def __init__(self, value: Any, node: Any = None) -> None:
        self.value, self.node = value, node


def packed(value: Any) -> Any:
    """Returns a value in a form for files, which later changes do not reach, or an `Opaque`."""
    try:
        node = _packed(value)
    except Exception:  # it contains itself, say, or belongs to a graph
        return Opaque(value)
    return Opaque(value, node) if _holds_opaque(node) else node


def same(a: Any, b: Any) -> bool:
    """Whether two packed values are equal; NaN equals itself."""
    if isinstance(a, Opaque) or isinstance(b, Opaque):
        both = isinstance(a, Opaque) and isinstance(b, Opaque)
        return both and _text(a.node) == _text(b.node) and (bool(a.node) or a.value is b.value)
    return type(a) is type(b) and _text(a) == _text(b)


def unpacked(node: Any, current: Any = None) -> Any:
    """Returns the value that was packed, also if a file held it in between.

    In `current`, the value in its place, containers that can change and objects with a state are
    changed, since others may hold them. Raises ValueError if nothing there can take a state.
    """
    if not isinstance(node, dict):
        return node
    kind, data = node["kind"], node["data"]
    if kind in _STATES:
        recognised, _, put_back = _STATES[kind]
        if not recognised(current):
            raise ValueError(f"there is no {kind} to take a state, but {type(current).__name__}")
        put_back(current, unpacked(data))
        return current
    is_alike = kind in _FAMILIES or type(current) is _VALUES[kind][0]
    value = _VALUES[kind][2](data, current if is_alike else None)
    if type(value) is not type(current):
        return value
    if isinstance(value, list):
        current[:] = value
    elif isinstance(value, (dict, set)):
        current.clear()
        current.update(value)
    elif isinstance(value, collections.deque) and value.maxlen == current.maxlen:
        current.clear()
        current.extend(value)
    else:
        return value
    return current


def _packed(value: Any) -> Any:
    if type(value) in _WORDS:
        return value
    for kind, (cls, pack, _) in _VALUES.items():
        if type(value) is cls or (kind in _FAMILIES and isinstance(value, cls)):
            return {"kind": kind, "data": pack(value)}
    for kind, (recognised, read, _) in _STATES.items():
        if recognised(value):
            return {"kind": kind, "data": _packed(read(value))}
    return Opaque(value)


def _holds_opaque(node: Any) -> bool:
    if isinstance(node, (dict, list)):
        return any(map(_holds_opaque, node.values() if isinstance(node, dict) else node))
    return isinstance(node, Opaque)


def _text(node: Any) -> str:
    def shortened(part: Any) -> Any:
        if isinstance(part, Opaque):
            return id(part.value)
        return [part.dtype.name, part.shape, hashlib.sha256(part.tobytes()).hexdigest()]

    return json.dumps(node, default=shortened)


def _pack_array(array: Any) -> list[Any]:
    array = np.array(array)
    if array.dtype.hasobject:
        raise TypeError("arrays of objects are no plain data")
    return [array.dtype.name, array]


def _unpack_array(data: list[Any], _: Any = None) -> np.ndarray:
    name, array = data
    # A file does not know the types that TensorFlow adds to NumPy's, such as bfloat16.
    return array.view(tf.as_dtype(name).as_numpy_dtype) if array.dtype.kind == "V" else array.copy()


def _pack_variable(variable: Any) -> list[Any]:
    return [_pack_array(variable), variable.trainable, variable.name.partition(":")[0]]


def _unpack_variable(data: list[Any], current: Any) -> tf.Variable:
    (_, array), trainable, name = data
    if not isinstance(current, tf.Variable):
        return tf.Variable(_unpack_array(data[0]), trainable=trainable, name=name)
    if tuple(current.shape) != array.shape:
        raise ValueError(f"the variable has another shape than {array.shape}, which was saved")
    current.assign(_unpack_array(data[0]))
    return current


def _pack_items(items: Any) -> list[Any]:
    return [_packed(item) for item in items]


def _unpack_items(data: list[Any], current: Any = None) -> list[Any]:
    held = [*(current or ())][: len(data)]
    return [unpacked(node, old) for node, old in itertools.zip_longest(data, held)]


def _pack_pairs(mapping: Any) -> list[Any]:
    return [[_packed(key), _packed(value)] for key, value in mapping.items()]


def _unpack_pairs(data: list[Any], current: Any) -> dict[Any, Any]:
    pairs = [(unpacked(key), node) for key, node in data]
    return {key: unpacked(node, (current or {}).get(key)) for key, node in pairs}


def _pack_defaults(mapping: Any) -> list[Any]:
    factory = mapping.default_factory
    name: Any = getattr(factory, "__name__", None)
    if factory is not None and _FACTORIES.get(name) is not factory:
        raise TypeError("a factory is no plain data")
    return [name, _pack_pairs(mapping)]


def _unpack_defaults(data: list[Any], current: Any) -> Any:
    return collections.defaultdict(_FACTORIES.get(data[0]), _unpack_pairs(data[1], current))


def _items_of(cls: Callable[[list[Any]], Any]) -> tuple[Any, Any, Any]:
    return cls, _pack_items, lambda data, current: cls(_unpack_items(data, current))


def _set_of(cls: Callable[[list[Any]], Any]) -> tuple[Any, Any, Any]:
    pack = lambda items: sorted(_pack_items(items), key=repr)  # noqa: E731
    return cls, pack, lambda data, _: cls(_unpack_items(data))


def _mapping_of(cls: Callable[[dict[Any, Any]], Any]) -> tuple[Any, Any, Any]:
    return cls, _pack_pairs, lambda data, current: cls(_unpack_pairs(data, current))


def _variables(value: Any) -> list[Any]:
    found = value.variables if hasattr(value, "variables") else [value]
    return list(found() if callable(found) else found)


def _is_variable(value: Any) -> bool:
    return hasattr(value, "assign") and hasattr(value, "trainable")


def _has_variables(value: Any) -> bool:
    """Whether a value is a variable of Keras, or a metric, a model, an optimizer, a module."""
    if isinstance(value, type) or not (hasattr(value, "variables") or _is_variable(value)):
        return False
    return all(map(_is_variable, _variables(value)))


def _assign(value: Any, arrays: list[np.ndarray]) -> None:
    variables = _variables(value)
    if [tuple(variable.shape) for variable in variables] != [a.shape for a in arrays]:
        raise ValueError(f"the variables of {type(value).__name__} are not those that were saved")
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)


# The type, how a value is packed, and how it comes back, beside what stands there.
_VALUES: dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "list": _items_of(list),
    "tuple": _items_of(tuple),
    "set": _set_of(set),
    "frozenset": _set_of(frozenset),
    "deque": (
        collections.deque,
        lambda value: [value.maxlen, _pack_items(value)],
        lambda data, current: collections.deque(_unpack_items(data[1], current), data[0]),
    ),
    "dict": _mapping_of(dict),
    "OrderedDict": _mapping_of(collections.OrderedDict),
    "Counter": _mapping_of(collections.Counter),
    "defaultdict": (collections.defaultdict, _pack_defaults, _unpack_defaults),
    "array": (np.ndarray, _pack_array, _unpack_array),
    "scalar": (np.generic, _pack_array, lambda data, _: _unpack_array(data)[()]),
    "tensor": (tf.Tensor, _pack_array, lambda data, _: tf.constant(_unpack_array(data))),
    "variable": (tf.Variable, _pack_variable, _unpack_variable),
    "bytes": (bytes, bytes.hex, lambda data, _: bytes.fromhex(data)),
    "complex": (complex, lambda z: [z.real, z.imag], lambda data, _: complex(*data)),
    "path": (pathlib.PurePath, str, lambda data, _: pathlib.Path(data)),
    "datetime": (
        datetime.datetime,
        str,
        lambda data, _: datetime.datetime.fromisoformat(data),
    ),
    "date": (datetime.date, str, lambda data, _: datetime.date.fromisoformat(data)),
    "time": (datetime.time, str, lambda data, _: datetime.time.fromisoformat(data)),
    "timedelta": (
        datetime.timedelta,
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda data, _: datetime.timedelta(*data),
    ),
}
_FAMILIES = ("scalar", "tensor", "variable", "path")  # of many types, all alike
# How an object is recognised, and how its state is read and put back.
_STATES: dict[str, tuple[Callable[[Any], bool], Callable[[Any], Any], Callable[..., None]]] = {
    "random.Random": (
        lambda value: type(value) is random.Random,
        random.Random.getstate,
        random.Random.setstate,
    ),
    "RandomState": (
        lambda value: type(value) is np.random.RandomState,
        np.random.RandomState.get_state,
        np.random.RandomState.set_state,
    ),
    "Generator": (
        lambda value: type(value) is np.random.Generator,
        lambda value: value.bit_generator.state,
        lambda value, state: setattr(value.bit_generator, "state", state),
    ),
    "variables": (_has_variables, lambda value: list(map(np.array, _variables(value))), _assign),
}
