"""Plain data: values that a file can hold, and that are restored without running any code.

Numbers, strings, dates, arrays, tensors and containers of them become a line of JSON and the bytes
that it refers to. Objects with a state (a generator of random numbers, a variable, a metric or a
model with its variables) are saved separately, as a state that is restored into existing objects.
"""

import collections
import datetime
import io
import itertools
import json
import pathlib
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf


class Packed(NamedTuple):
    """A value in bytes without the objects that have a state, and the states of these."""

    value: bytes
    states: bytes
    is_whole: bool  # whether all of it can be restored


def _parts_of_array(value: Any) -> Iterable[Any] | None:
    dtype = (array := np.asarray(value)).dtype
    name = dtype.name if dtype.isbuiltin == 2 else dtype.str  # e.g. bfloat16, not NumPy's own
    return None if dtype.hasobject or dtype.fields else (name, array.shape, array.tobytes())


def _array(dtype: str, shape: tuple[int, ...], data: bytes) -> np.ndarray:
    return np.frombuffer(data, str(dtype)).reshape(shape).copy()  # refuses objects


_DATES = (datetime.date, datetime.datetime, datetime.time)
_TIMES = (datetime.timedelta, datetime.timezone)
_PATHS = (type(pathlib.Path()), pathlib.PurePosixPath, pathlib.PureWindowsPath)
# The parts of values whose class JSON lacks; None for a value that cannot be restored.
_PARTS: dict[type, Callable[[Any], Iterable[Any] | None]] = {
    **dict.fromkeys((tuple, set, frozenset), lambda value: [list(value)]),
    **dict.fromkeys((collections.Counter, collections.OrderedDict), lambda value: [dict(value)]),
    **dict.fromkeys(_PATHS, lambda value: [str(value)]),
    **dict.fromkeys((*_DATES, *_TIMES), lambda value: value.__reduce__()[1]),
    **dict.fromkeys((np.ndarray, np.generic, tf.Tensor), _parts_of_array),
    dict: lambda value: [list(value), list(value.values())],
    collections.defaultdict: lambda value: [value.default_factory, dict(value)],
    collections.deque: lambda value: [list(value), value.maxlen],
    bytearray: lambda value: [bytes(value)],
    complex: lambda value: [value.real, value.imag],
    Packed: list,
}
_OF_JSON = (type(None), bool, int, float, str)
_CLASSES = {each.__name__: each for each in (*_OF_JSON, list, bytes, *_PARTS)}
_MAKERS: dict[str, Callable[..., Any]] = {
    **_CLASSES,
    # `replace` makes them check their numbers.
    **{each.__name__: lambda *parts, cls=each: cls(*parts).replace() for each in _DATES},
    "dict": lambda keys, values: dict(zip(keys, values, strict=True)),
    "ndarray": _array,
    "generic": lambda *parts: _array(*parts)[()],
    "Tensor": lambda *parts: tf.constant(_array(*parts)),
    "class": _CLASSES.__getitem__,
    "lost": lambda _: None,  # its id tells if another object takes its place
}


def packed(value: Any) -> Packed:
    """Returns a value in bytes, which stay the same until it changes."""
    try:
        data, objects, is_whole = _written(value)
        states, _, are_whole = _written([_state_of(each) for each in objects])
        return Packed(data, states, is_whole and are_whole)
    except Exception:  # e.g. it belongs to a graph
        return Packed(b'{"lost": [%d]}' % id(value), b"[]", is_whole=False)


def unpacked(node: Packed, current: Any = None) -> Any:
    """Returns the value that was packed, with None for parts that are not plain data.

    Mutable containers and objects with a state in `current`, the existing value, are changed in
    place, since others may hold them. Raises ValueError if it has no object to take a state.
    """
    _, there, _ = _written(current)
    states = loaded(node.states)
    pairs = itertools.zip_longest(states, there[: len(states)])
    objects = [_restored(state, each) for state, each in pairs]
    return _in_place(loaded(node.value, objects), current)


def dumped(value: Any) -> bytes:
    """Returns plain data in bytes."""
    return _written(value)[0]


def loaded(data: bytes, objects: Sequence[Any] = ()) -> Any:
    """Returns the value that `dumped` wrote; raises an exception for any other bytes."""
    file = io.BytesIO(data)
    makers: dict[str, Any] = {**_MAKERS, "bytes": file.read, "object": objects.__getitem__}
    return json.loads(
        file.readline(),
        object_hook=lambda node: [makers[kind](*parts) for kind, parts in node.items()][0],
    )


def _written(value: Any) -> tuple[bytes, list[Any], bool]:
    """Returns a value in bytes, its objects with a state, and whether the rest is plain data."""
    objects: list[Any] = []
    data: list[bytes] = []
    lost: list[Any] = []

    def node(value: Any) -> Any:
        kind = type(value)
        if kind in _OF_JSON:
            return value
        if kind is list:
            return [node(item) for item in value]
        if kind is bytes:
            data.append(value)
            return {"bytes": [len(value)]}
        if kind not in _PARTS:
            kind = next((c for c in (np.generic, tf.Tensor) if isinstance(value, c)), kind)
        if kind in _PARTS and (parts := _PARTS[kind](value)) is not None:
            return {kind.__name__: [node(part) for part in parts]}
        if isinstance(value, type) and _CLASSES.get(value.__name__) is value:
            return {"class": [value.__name__]}
        if _kind_of(value) >= 0:
            objects.append(value)
            return {"object": [len(objects) - 1]}
        lost.append(value)
        return {"lost": [id(value)]}

    text = json.dumps(node(value)).encode()
    return b"\n".join([text, b"".join(data)]), objects, not lost


def _in_place(value: Any, current: Any) -> Any:
    """Returns `current` with the items of `value` if both are of one mutable type, else `value`."""
    if type(value) is not type(current):
        return value
    if isinstance(value, dict):
        items = {key: _in_place(item, current.get(key)) for key, item in value.items()}
        current.clear()
        current.update(items)
    elif isinstance(value, list):
        pairs = itertools.zip_longest(value, current[: len(value)])
        current[:] = [_in_place(item, old) for item, old in pairs]
    elif isinstance(value, set):
        current.clear()
        current.update(value)
    elif isinstance(value, collections.deque) and value.maxlen == current.maxlen:
        current.clear()
        current.extend(value)
    else:
        return value
    return current


def _variables(value: Any) -> list[Any]:
    held = value.variables if hasattr(value, "variables") else [value]
    return list(held() if callable(held) else held)


def _is_variable(value: Any) -> bool:
    return hasattr(value, "assign") and hasattr(value, "trainable")


def _has_variables(value: Any) -> bool:
    if isinstance(value, type) or not (hasattr(value, "variables") or _is_variable(value)):
        return False
    return all(map(_is_variable, _variables(value)))


def _assign(value: Any, arrays: list[np.ndarray]) -> None:
    variables = _variables(value)
    if [tuple(variable.shape) for variable in variables] != [a.shape for a in arrays]:
        raise ValueError(f"the variables of {type(value).__name__} are not those that were saved")
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)


def _checked(state: dict[str, Any]) -> dict[str, Any]:
    """Returns a NumPy generator's state; raises ValueError, as NumPy itself checks no bounds."""
    places = {**state["state"], **state}
    if not (0 <= places.get("pos", 0) <= 624 and 0 <= places.get("buffer_pos", 0) <= 4):
        raise ValueError("a generator's place is outside of its numbers")
    return state


# How an object is recognized, and how its state is read and restored.
_STATES: tuple[tuple[Callable[[Any], bool], Callable[[Any], Any], Callable[..., None]], ...] = (
    (lambda value: type(value) is random.Random, random.Random.getstate, random.Random.setstate),
    (
        lambda value: type(value) is np.random.RandomState,
        lambda value: value.get_state(legacy=False),
        lambda value, state: value.set_state(_checked(state)),
    ),
    (
        lambda value: type(value) is np.random.Generator,
        lambda value: value.bit_generator.state,
        lambda value, state: setattr(value.bit_generator, "state", _checked(state)),
    ),
    (_has_variables, lambda value: list(map(np.array, _variables(value))), _assign),
)


def _kind_of(value: Any) -> int:
    """Returns which of `_STATES` an object has; -1 for none."""
    return next((n for n, (recognized, *_) in enumerate(_STATES) if recognized(value)), -1)


def _state_of(value: Any) -> tuple[Any, ...]:
    kind = _kind_of(value)
    is_variable = isinstance(value, tf.Variable)
    of_variable = (value.trainable, value.name.partition(":")[0]) if is_variable else None
    return kind, _STATES[kind][1](value), of_variable


def _restored(saved: tuple[Any, ...], current: Any) -> Any:
    """Returns the object with the restored state: `current`, or a new variable if it is None."""
    kind, state, of_variable = saved
    if current is None and of_variable is not None:
        trainable, name = of_variable
        return tf.Variable(state[0], trainable=trainable, name=name)
    if _kind_of(current) != kind:
        raise ValueError(f"there is nothing to take a state, but {type(current).__name__}")
    _STATES[kind][2](current, state)
    return current
