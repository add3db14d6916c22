"""Digests of code and objects that are the same in every process.

A digest is taken of a description, a JSON value. For code, it contains what is run (bytecode,
constants, the functions and plain values that it names), not its location; for an object its class,
its configuration and the attributes that its own code names. Nothing in it depends on addresses, on
the order of sets, or on where a module was imported from; Python and framework code goes by its
name.
"""

import collections
import contextlib
import dataclasses
import datetime
import enum
import functools
import inspect
import json
import numbers
import pathlib
import re
import sys
import types
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tfx_perf.core import cache_key

_FRAMEWORKS = {"keras", "tf_keras", "tensorflow", "numpy", *sys.stdlib_module_names} - {"__main__"}
_WORDS = (type(None), bool, int, float, complex, str, bytes, type(...))
# Immutable values whose text form says everything about them.
_VALUES = (
    *(numbers.Number, range, slice, pathlib.PurePath, uuid.UUID, np.dtype, np.ufunc),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.timezone),
)
_CONSTANTS = (*_WORDS, *_VALUES, enum.Enum, re.Pattern, types.ModuleType, np.ndarray, np.generic)
_SEQUENCES = (tuple, list, collections.deque, set, frozenset)
# Types that hold other functions, and the attributes that hold these.
_HOLDERS: dict[type, tuple[str, ...]] = {
    types.MethodType: ("__func__",),
    functools.partial: ("func", "args", "keywords"),
    type(functools.cache(id)): ("__wrapped__",),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
}
_CODE = (type, types.FunctionType, types.BuiltinFunctionType, *_HOLDERS)
_NOT_CODE = ("__doc__", "__module__", "__dict__", "__weakref__", "__annotations__")
_NOT_CODE_PREFIXES = ("_abc_", "__static", "__firstline")
# Attributes that training changes, or that Keras numbers.
_PASSING = {"built", "history", "name", "_name", "stop_training"}
# Limits: characters of a value shown to users, items of a sequence, and values in all.
_SHORT, _LONG, _MOST_VALUES = 100, 32, 10_000
_NUMBER = re.compile(r"_\d+$")


def digest(description: Any) -> str:
    """Returns 16 hexadecimal digits for a description."""
    return cache_key.digest(json.dumps(description).encode())


def is_of_framework(value: Any) -> bool:
    """Whether a function or class is Python's, NumPy's, TensorFlow's or Keras'."""
    module = getattr(value, "__module__", None)
    if isinstance(value, types.FunctionType):  # a wrapper has the `__module__` of what it wraps
        module = value.__globals__.get("__name__")
    return str(module or "builtins").partition(".")[0] in _FRAMEWORKS


class Describer:
    """Describes each object once; where it occurs again, it is described by a number.

    `code` has the digest of every user class that was described, by name; `values` has the
    beginnings of plain values, by where users find them, such as `MyLayer.call.FACTOR`.
    """

    def __init__(self, *, ignored: Iterable[str] = ()) -> None:
        """Starts empty; `ignored` are names that are skipped.

        These are names of globals, attributes, arguments and variables in closures.
        """
        self.code: dict[str, str] = {}
        self.values: dict[str, str] = {}
        self._ignored = frozenset(ignored)
        self._place: tuple[str, ...] = ()
        self._met: dict[int, tuple[Any, Any]] = {}  # holds the object, so that its id is not reused

    def of(self, value: Any) -> Any:
        """Returns the description of any value."""
        if type(value) in _WORDS:
            return value if isinstance(value, (bool, str, type(None))) else repr(value)
        if id(value) in self._met:
            return self._met[id(value)][1]
        # A number for now, because the value may contain itself.
        self._met[id(value)] = value, f"{type(value).__name__} {len(self._met)}"
        try:
            parts = self._of(value)
            is_constant = _is_constant(value)
        except Exception:  # a property of the user's raises, for example
            parts, is_constant = type(value).__name__, False
        if isinstance(value, _CODE):
            self._met[id(value)] = value, parts if isinstance(parts, str) else digest(parts)
        elif is_constant:  # where equal constants were compiled decides if they are one object
            self._met[id(value)] = value, parts
        return parts

    def at(self, name: str, value: Any, description_of: Callable[[Any], Any] | None = None) -> Any:
        """Returns the description, by `of` or another function, of what users call `name`."""
        if self._place and name.rpartition(".")[2] in self._ignored:
            return "ignored"
        with self._looking_at(*self._place, name):
            is_shown = isinstance(value, (str, bytes, *_VALUES)) and not isinstance(value, bool)
            if is_shown and len(self.values) < _MOST_VALUES:
                shown = _NUMBER.sub("", value) if name == "name" else value
                self.values.setdefault(".".join(self._place), repr(shown)[:_SHORT])
            return (description_of or self.of)(value)

    @contextlib.contextmanager
    def _looking_at(self, *place: str) -> Iterator[None]:
        before, self._place = self._place, place
        try:
            yield
        finally:
            self._place = before

    def _of(self, value: Any) -> Any:
        if isinstance(value, type):
            return self._of_class(value)
        if isinstance(value, types.FunctionType):
            return self._of_function(value)
        if isinstance(value, types.CodeType):
            return self._of_code(value)
        if isinstance(value, (Mapping, *_SEQUENCES)):
            return self._of_container(value)
        if (fields := _fields(value)) is not None:
            return [self.of(type(value)), {k: self.at(k, v) for k, v in fields.items()}]
        return self._of_holder(value) or self._of_constant(value) or self._of_object(value)

    def _of_holder(self, value: Any) -> list[Any] | None:
        kinds = [kind for kind in _HOLDERS if isinstance(value, kind)]
        if kinds:
            held = [self._named(getattr(value, name)) for name in _HOLDERS[kinds[0]]]
            owner = [self.of(type(value.__self__))] if kinds[0] is types.MethodType else []
            return [type(value).__name__, *held, *owner]
        if isinstance(value, types.BuiltinFunctionType):
            return [value.__qualname__, self._named(value.__self__)]
        if hasattr(value, "python_function"):
            return ["tf.function", self.of(value.python_function)]
        return None

    def _of_container(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {
                name: self.at(name, item)
                for key, item in value.items()
                for name in [key if isinstance(key, str) else json.dumps(self.of(key))]
            }
        if isinstance(value, (set, frozenset)):
            # Sorted, so that an object that two items share is always first met in the same one.
            items = sorted(value, key=_sort_key)
            return ["set", *sorted(json.dumps(self.of(item)) for item in items)]
        if len(value) > _LONG:  # too long for users to find a value by its index
            return [self.of(item) for item in value]
        return [self.at(f"[{index}]", item) for index, item in enumerate(value)]

    def _of_constant(self, value: Any) -> Any:
        if isinstance(value, enum.Enum):
            return [type(value).__qualname__, value.name, self._named(value.value)]
        if isinstance(value, re.Pattern):
            return [self.of(value.pattern), value.flags]
        if isinstance(value, types.ModuleType):
            return value.__name__
        if hasattr(value, "assign") and hasattr(value, "trainable"):  # a variable holds state
            return ["variable", str(value.dtype), str(value.shape)]
        if isinstance(value, (np.ndarray, np.generic)) or hasattr(value, "numpy"):
            array = np.asarray(value)
            data = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
            return [array.dtype.name, list(array.shape), cache_key.digest(data)]
        if isinstance(value, _CONSTANTS) or _is_type_of_tensors(value):
            return [type(value).__name__, str(value)]
        return None

    def _of_class(self, cls: type) -> Any:
        if is_of_framework(cls):
            return f"{cls.__module__}.{cls.__qualname__}"
        name = cls.__qualname__
        with self._looking_at(_plain_name(cls)):
            parts = {
                key: self.at(key, item, self._named)
                for key, item in sorted(vars(cls).items())
                if key not in _NOT_CODE and not key.startswith(_NOT_CODE_PREFIXES)
            }
        description = [name, [self.of(base) for base in cls.__bases__], parts]
        self.code[name] = digest(description)
        return description

    def _of_function(self, function: types.FunctionType) -> Any:
        code, defaults = function.__code__, function.__defaults__ or ()
        if is_of_framework(function):
            name = f"{function.__globals__.get('__name__')}.{code.co_name}"
            # A wrapper of a framework, such as Keras', holds the user's function.
            wrapped = getattr(function, "__wrapped__", None)
            return name if wrapped is None else [name, self.of(wrapped)]
        arguments = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
        is_lambda = function.__name__ == "<lambda>"  # lambdas go by their place
        with self._looking_at(*(self._place if is_lambda else [_plain_name(function)])):
            return [
                self._of_code(code, documentation=function.__doc__),
                self._all_named(zip(arguments, defaults, strict=True)),
                self._all_named((function.__kwdefaults__ or {}).items()),
                self._all_named(_closure(function)),
                # The globals of an installed package would pull in all of it.
                {} if _is_installed(function) else dict(self._globals(function)),
            ]

    def _all_named(self, named: Iterable[tuple[str, Any]]) -> list[Any]:
        return [self.at(name, value, self._named) for name, value in named]

    def _of_code(self, code: types.CodeType, *, documentation: str | None = None) -> Any:
        constants = [c for c in code.co_consts if documentation is None or c != documentation]
        return [
            code.co_name,
            code.co_code.hex(),
            [code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount, code.co_flags],
            [*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars],
            [[type(c).__name__, self.of(c)] for c in constants],
        ]

    def _globals(self, function: types.FunctionType) -> Iterator[tuple[str, Any]]:
        names = sorted(set(_names(function.__code__)))
        for name in names:
            value = function.__globals__.get(name)
            if not isinstance(value, types.ModuleType):
                yield name, self.at(name, value, self._named)
            elif value.__name__.partition(".")[0] not in _FRAMEWORKS:
                held = {f"{name}.{n}": vars(value)[n] for n in names if n in vars(value)}
                yield from zip(held, self._all_named(held.items()), strict=True)

    def _named(self, value: Any) -> Any:
        """Returns the description of a value that code names; of a mutable one, only its class'."""
        if _is_constant(value):
            return self.of(value)
        cls = type(value)
        return cls.__name__ if is_of_framework(cls) or _is_installed(cls) else self.of(cls)

    def _of_object(self, value: Any) -> Any:
        cls = type(value)
        try:
            config = self.of(value.get_config())
        except Exception:  # it has no config, or the user did not implement it
            config = None
        parts: dict[str, Any] = {"class": self.of(cls), "config": config}
        attributes = getattr(value, "__dict__", {})
        # Attributes that the user's own code names, and user functions that any object was given.
        for base in cls.__mro__:
            if not is_of_framework(base):
                of_base = {name for item in vars(base).values() for name in _names(_code(item))}
                held = (of_base & attributes.keys()) - _PASSING
                parts |= {f".{name}": self.at(name, attributes[name]) for name in sorted(held)}
        for name, item in attributes.items():
            if callable(item) and inspect.isroutine(item) and not is_of_framework(item):
                parts[f".{name}"] = self.at(name, item)
        return parts


def _plain_name(code: type | types.FunctionType) -> str:
    return code.__qualname__.replace("<locals>.", "")


def _closure(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # it is still empty
            yield name, cell.cell_contents


def _names(code: types.CodeType | None) -> Iterator[str]:
    if code is not None:
        yield from code.co_names
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                yield from _names(constant)


def _code(item: Any) -> types.CodeType | None:
    item = getattr(item, "python_function", getattr(item, "__func__", item))
    item = item.fget if isinstance(item, property) else inspect.unwrap(item)
    return getattr(item, "__code__", None)


def _is_constant(value: Any) -> bool:
    """Whether a function that names the value depends on its content, which does not change."""
    if isinstance(value, (Mapping, *_SEQUENCES)):
        return all(map(_is_constant, value.values() if isinstance(value, Mapping) else value))
    if (fields := _fields(value)) is not None:
        return all(map(_is_constant, fields.values()))
    is_code = isinstance(value, _CODE) or hasattr(value, "python_function")
    is_tensor = hasattr(value, "numpy") and not hasattr(value, "assign")  # not a variable
    return is_code or is_tensor or isinstance(value, _CONSTANTS) or _is_type_of_tensors(value)


def _is_type_of_tensors(value: Any) -> bool:
    return not isinstance(value, type) and hasattr(value, "is_compatible_with")


def _sort_key(item: Any) -> str:
    """Returns the key to sort a set's items by, independent of hashes; looks at no code."""
    if isinstance(item, (*_WORDS, *_VALUES)):
        return f"{type(item).__name__} {item!r}"
    if isinstance(item, (set, frozenset)):
        return str(sorted(map(_sort_key, item)))
    if isinstance(item, _SEQUENCES):
        return str([*map(_sort_key, item)])
    if isinstance(item, types.FunctionType):
        return f"{item.__qualname__} {item.__code__.co_firstlineno}"
    return str(getattr(item, "name", type(item).__qualname__))


def _fields(value: Any) -> dict[str, Any] | None:
    """Returns the fields of a dataclass or a namespace; None for anything else."""
    if isinstance(value, types.SimpleNamespace):
        return vars(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _is_installed(code: types.FunctionType | type) -> bool:
    if isinstance(code, type):
        file = getattr(sys.modules.get(code.__module__), "__file__", None) or ""
    else:
        file = code.__code__.co_filename
    return "site-packages" in pathlib.Path(file).parts
