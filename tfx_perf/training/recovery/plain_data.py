"""Plain data: values that a file can hold, and that come back without running anything.

Numbers, words, dates, arrays, tensors and containers of them are pickled, and read by an unpickler
that knows no other class. Objects with a state (a generator of random numbers, a variable, a metric
or a model with its variables) stand apart, as that state, which is put back into the existing ones.
"""

import collections
import datetime
import io
import itertools
import pathlib
import pickle
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf


class Packed(NamedTuple):
    """A value in bytes: without the objects that have a state, and their states."""

    value: bytes
    states: bytes
    is_whole: bool  # whether it can come back


def _tensor(array: np.ndarray) -> tf.Tensor:
    return tf.constant(array)


_PLAIN = {
    *(type(None), bool, int, float, complex, str, bytes, bytearray),
    *(list, tuple, dict, set, frozenset),
    *(collections.Counter, collections.OrderedDict, collections.defaultdict, collections.deque),
    *(datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone),
    *(type(pathlib.Path()), pathlib.PurePosixPath, pathlib.PureWindowsPath),
    *(np.ndarray, tf.bfloat16.as_numpy_dtype, Packed),
}
# What pickles name: the classes, and what NumPy and this module make values with.
_NAMED = {
    (each.__module__, each.__qualname__): each
    for each in (
        *(_PLAIN - {type(None)}),
        *(np.dtype, _tensor, np.empty(0).__reduce__()[0], np.float32().__reduce__()[0]),
    )
}


def packed(value: Any) -> Packed:
    """Returns a value in bytes, which are the same until it changes."""
    pickler = _Pickler()
    try:
        data = pickler.pickled(value)
        states = _Pickler()
        read = [_state_of(each) for each in pickler.objects]
        return Packed(data, states.pickled(read), pickler.is_whole and states.is_whole)
    except Exception:  # it belongs to a graph, say
        return Packed(str(id(value)).encode(), b"", is_whole=False)


def unpacked(node: Packed, current: Any = None) -> Any:
    """Returns the value that was packed, with None for what is no plain data.

    In `current`, the value in its place, containers that can change and objects with a state are
    changed, since others may hold them. Raises ValueError if nothing there can take a state.
    """
    there = _Pickler()
    there.pickled(current)
    states = loaded(node.states)
    pairs = itertools.zip_longest(states, there.objects[: len(states)])
    objects = [_put_back(state, each) for state, each in pairs]
    return _in_place(_Unpickler(node.value, objects).load(), current)


def dumped(value: Any) -> bytes:
    """Returns plain data in bytes."""
    return _Pickler().pickled(value)


def loaded(data: bytes) -> Any:
    """Returns what `dumped` was given; raises UnpicklingError for anything else."""
    return _Unpickler(data).load()


class _Pickler(pickle.Pickler):
    """Notes the objects with a state, and whether there is anything that is no plain data."""

    def __init__(self) -> None:
        self._file = io.BytesIO()
        super().__init__(self._file, protocol=4)  # a later one has arrays apart
        self.objects: list[Any] = []
        self.is_whole = True

    def pickled(self, value: Any) -> bytes:
        self.dump(value)
        return self._file.getvalue()

    def persistent_id(self, value: Any) -> Any:
        if type(value) in _PLAIN or isinstance(value, (np.generic, np.dtype, tf.Tensor)):
            return None
        if _NAMED.get(_name_of(value)) is value:
            return None
        if any(recognised(value) for recognised, _, _ in _STATES):
            self.objects.append(value)
            return len(self.objects) - 1
        self.is_whole = False
        return f"{type(value).__name__} {id(value)}"

    def reducer_override(self, value: Any) -> Any:
        return (_tensor, (value.numpy(),)) if isinstance(value, tf.Tensor) else NotImplemented


def _name_of(value: Any) -> Any:
    return getattr(value, "__module__", None), getattr(value, "__qualname__", None)


class _Unpickler(pickle.Unpickler):
    """Finds the named classes and functions alone, and imports none."""

    def __init__(self, data: bytes, objects: list[Any] | None = None) -> None:
        super().__init__(io.BytesIO(data))
        self._objects = objects or []

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _NAMED:
            raise pickle.UnpicklingError(f"{module}.{name} is no plain data")
        return _NAMED[module, name]

    def persistent_load(self, pid: Any) -> Any:
        return self._objects[pid] if isinstance(pid, int) else None


def _in_place(value: Any, current: Any) -> Any:
    """Returns `current` with the items of a value of its type, if that can change."""
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
    found = value.variables if hasattr(value, "variables") else [value]
    return list(found() if callable(found) else found)


def _is_variable(value: Any) -> bool:
    return hasattr(value, "assign") and hasattr(value, "trainable")


def _has_variables(value: Any) -> bool:
    """Whether a value is a variable, or a metric, a model, an optimizer, a module."""
    if isinstance(value, type) or not (hasattr(value, "variables") or _is_variable(value)):
        return False
    return all(map(_is_variable, _variables(value)))


def _assign(value: Any, arrays: list[np.ndarray]) -> None:
    variables = _variables(value)
    if [tuple(variable.shape) for variable in variables] != [a.shape for a in arrays]:
        raise ValueError(f"the variables of {type(value).__name__} are not those that were saved")
    for variable, array in zip(variables, arrays, strict=True):
        variable.assign(array)


# How an object is recognised, and how its state is read and put back.
_STATES: tuple[tuple[Callable[[Any], bool], Callable[[Any], Any], Callable[..., None]], ...] = (
    (
        lambda value: type(value) is random.Random,
        random.Random.getstate,
        random.Random.setstate,
    ),
    (
        lambda value: type(value) is np.random.RandomState,
        np.random.RandomState.get_state,
        np.random.RandomState.set_state,
    ),
    (
        lambda value: type(value) is np.random.Generator,
        lambda value: value.bit_generator.state,
        lambda value, state: setattr(value.bit_generator, "state", state),
    ),
    (_has_variables, lambda value: list(map(np.array, _variables(value))), _assign),
)


def _kind_of(value: Any) -> int:
    """Returns which of `_STATES` an object has; -1 for none."""
    return next((n for n, (recognised, *_) in enumerate(_STATES) if recognised(value)), -1)


def _state_of(value: Any) -> tuple[Any, ...]:
    kind = _kind_of(value)
    is_variable = isinstance(value, tf.Variable)
    own = (value.trainable, value.name.partition(":")[0]) if is_variable else None
    return kind, _STATES[kind][1](value), own


def _put_back(saved: tuple[Any, ...], current: Any) -> Any:
    """Returns the object that has taken a state: `current`, or a new variable if that has none."""
    kind, state, own = saved
    if current is None and own is not None:
        trainable, name = own
        return tf.Variable(state[0], trainable=trainable, name=name)
    if _kind_of(current) != kind:
        raise ValueError(f"there is nothing to take a state, but {type(current).__name__}")
    _STATES[kind][2](current, state)
    return current
