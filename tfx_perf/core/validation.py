"""Says in one line what is wrong with settings that a user gives."""

import fnmatch
import functools
import json
import re
import textwrap
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import pydantic
from pydantic.fields import FieldInfo

from tfx_perf.core import errors

Location = tuple[int | str, ...]
"""Keys and indices, the outermost one first."""
PlaceOf = Callable[[Location], str]
"""Returns where a value is, e.g. `perf.yaml, line 3`."""

ModelT = TypeVar("ModelT", bound=pydantic.BaseModel)

# The expectations of pydantic's own checks, by their names.
_EXPECTATIONS = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    **dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "keys with values"),
    **dict.fromkeys(
        ("time_delta_type", "time_delta_parsing"), "a time in seconds, or one such as PT1H30M"
    ),
    **dict.fromkeys(
        ("datetime_type", "datetime_parsing", "datetime_from_date_parsing"),
        "a date such as 2026-01-31 or 2026-01-31T12:00:00Z",
    ),
    "finite_number": "a number that is neither NaN nor infinite",
    "string_type": "text",
    "string_too_short": "text of at least {min_length} character(s)",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "literal_error": "{expected}",
}

# Spellings that people use for values, and the ones used here.
_OTHER_SPELLINGS = {"none": "null", "bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
_OF_NUMBERS = ("int_type", "float_type", "time_delta_parsing")
_NUMBER = re.compile(r"[-+]?[\d.,_ ']*\d([eE][-+]?\d+)?")  # as people may write it
_UNKNOWN_KEY = ("extra_forbidden", "invalid_key")  # for text, and for other keys such as numbers
_OF_A_KEY = "[key]"  # pydantic's location of a mapping's key


class SettingError(ValueError):
    """A validator's complaint about a `location` within its section, and a remedy, if any."""

    def __init__(self, expectation: str, *location: str, remedy: str = "") -> None:
        super().__init__(expectation)
        self.location = location
        self.remedy = remedy


def validated(
    model: type[ModelT], values: Any, *, place_of: PlaceOf, advice: Mapping[str, str]
) -> ModelT:
    """Returns settings from nested mappings; UserError names the first mistake and its place.

    `advice` has remedies for keys of earlier versions, by patterns of their names.
    """
    try:
        return model.model_validate(values)
    except pydantic.ValidationError as error:
        raise errors.UserError(_Complaint(error, model, values, advice).line(place_of)) from None


def check_nodes(settings: Iterable[str], nodes: Collection[str]) -> None:
    """Raises UserError if a key of the section `nodes` is not a node of the pipeline."""
    for node_id in settings:
        if node_id not in nodes:
            raise errors.UserError(
                f"Expected one of the pipeline's nodes: {', '.join(nodes)}. "
                f"Received: nodes.{node_id}. {errors.did_you_mean(node_id, nodes)}".rstrip()
            )


def expected(complaint: Mapping[str, Any]) -> str:
    """Returns what a complaint of pydantic's `ValidationError.errors()` asks for, in our words."""
    words = _EXPECTATIONS.get(complaint["type"])
    if words:
        return words.format(**complaint.get("ctx", {}))
    # From our own validators, or of a kind that no setting has.
    return re.sub(
        r"^(Value error, |Assertion failed, |Input should be (?=\S))", "", complaint["msg"]
    )


class _Complaint:
    """The first thing that pydantic finds wrong, in our words."""

    def __init__(
        self,
        error: pydantic.ValidationError,
        model: type[pydantic.BaseModel],
        values: Any,
        advice: Mapping[str, str],
    ) -> None:
        self._model, self._values, self._advice = model, values, advice
        self._all = error.errors()
        self._first = self._all[0]
        self._is_of_key = self._first["loc"][-1:] == (_OF_A_KEY,)
        self._kind = self._first["type"]
        cause = self._first.get("ctx", {}).get("error")
        self._cause = cause if isinstance(cause, SettingError) else SettingError("")
        self._given = self._first["input"]
        for part in self._cause.location:
            self._given = _below(self._given, part)
        self._location = (*self._location_of(self._first), *self._cause.location)
        if self._is_of_key or self._kind == "invalid_key":  # pydantic shows the key
            self._given = functools.reduce(_below, self._location, values)
        self._fields = _fields_at(model, self._key()[:-1])

    def line(self, place_of: PlaceOf) -> str:
        """Returns what was expected, where, what was received, and the remedy."""
        location = self._location[:-1] if self._kind == "missing" else self._location
        given = textwrap.shorten(repr(self._given), 200, placeholder=" ...")
        return (
            f"Expected {self._expectation()} in {place_of(location)}. "
            f"Received: {_name(location)}={given}. {self._remedy()}"
        ).rstrip()

    def _here(self) -> Iterator[Mapping[str, Any]]:
        here = self._location_of(self._first)
        return (each for each in self._all if self._location_of(each) == here)

    def _location_of(self, complaint: Mapping[str, Any]) -> Location:
        """Returns pydantic's location without the names that it gives to the types of a union."""
        location: list[int | str] = []
        value, parts = self._values, complaint["loc"]
        # Pydantic shows a key that is not text as a different one.
        if complaint["type"] == "invalid_key":
            parts = (*parts[:-1], complaint["input"])
        elif parts[-1:] == (_OF_A_KEY,):
            parts = (*parts[:-2], complaint["input"])
        for part in parts:
            is_key = isinstance(value, Mapping) and part in value
            if isinstance(part, str) and not is_key and complaint["type"] != "missing":
                break
            location.append(part)
            value = _below(value, part)
        return tuple(location)

    def _key(self) -> Location:
        """Returns the location of the key whose value is wrong, which may be an item of a list."""
        location = self._location
        if self._kind in _UNKNOWN_KEY:
            return location
        while location and isinstance(location[-1], int):
            location = location[:-1]
        return location

    def _expectation(self) -> str:
        if self._kind == "missing":
            return f"the key {self._location[-1]}"
        if self._kind in _UNKNOWN_KEY:
            return f"one of the keys {', '.join(sorted(self._fields))}"
        if self._is_of_key:
            return "text as a key"
        return " or ".join(dict.fromkeys(map(expected, self._here())))

    def _remedy(self) -> str:
        if self._kind == "missing":
            return f"Set {_name(self._location)}."
        if self._kind in _UNKNOWN_KEY:
            return self._meant_key()
        if self._is_of_key:
            return "Write the key in quotes."
        return self._cause.remedy or self._meant_value() or self._default()

    def _meant_value(self) -> str:
        """Returns the nearest choice, or how a number is written; empty if none was meant."""
        if not isinstance(self._given, str):
            return ""
        given = _OTHER_SPELLINGS.get(self._given.casefold(), self._given)
        if given == "null" and self._may_be_null():
            return "Did you mean null?"
        complaints = {each["type"]: each for each in self._here()}
        if "tuple_type" in complaints:
            return f"Did you mean [{given}]?"
        if "literal_error" in complaints:
            choices = re.findall("'(.+?)'", complaints["literal_error"]["ctx"]["expected"])
            return errors.did_you_mean(given, choices)
        if complaints.keys() & set(_OF_NUMBERS) and _NUMBER.fullmatch(self._given):
            return "Write it without quotes, with a point for decimals, as in 1000, 0.5 or 1.0e+9."
        return ""

    def _may_be_null(self) -> bool:
        field = self._fields.get(str(self._location[-1])) if self._location else None
        return field is not None and types.NoneType in typing.get_args(field.annotation)

    def _meant_key(self) -> str:
        """Returns what replaces the key, the nearest key here, or where the key exists."""
        key = str(self._location[-1])
        for pattern, advice in self._advice.items():
            if fnmatch.fnmatchcase(_name(self._location), pattern):
                return advice
        elsewhere = " or ".join(_names_with(key, self._model))
        near = errors.did_you_mean(key, self._fields)
        return f"Did you mean {elsewhere}?" if elsewhere and not near else near

    def _default(self) -> str:
        """Returns the remedy that always helps if a single value is wrong."""
        key = self._key()
        field = self._fields.get(str(key[-1])) if key else None
        if field is None or field.is_required() or isinstance(self._given, Mapping):
            return ""
        default = field.get_default(call_default_factory=True)
        if isinstance(default, pydantic.BaseModel):
            return f"Leave {_name(key)} out for the defaults."
        shown = default if isinstance(default, str) else json.dumps(default, default=str)
        return f"Leave {_name(key)} out for the default, {shown}."


def _name(location: Location) -> str:
    return ".".join(map(str, location)) or "settings"


def _below(value: Any, part: int | str) -> Any:
    try:
        return value[part]
    except (IndexError, KeyError, TypeError):
        return None


def _fields_at(model: type[pydantic.BaseModel], location: Location) -> Mapping[str, FieldInfo]:
    kind: Any = model
    for part in location:
        fields = getattr(kind, "model_fields", None)
        # A key of a mapping is no field: its type is the last argument of `Mapping[str, X]`.
        kind = fields[part].annotation if fields else (typing.get_args(kind) or (None,))[-1]
        kind = _without_none(kind)
    return getattr(kind, "model_fields", {})


def _without_none(kind: Any) -> Any:
    alternatives = typing.get_args(kind)
    if types.NoneType not in alternatives:
        return kind
    return next(each for each in alternatives if each is not types.NoneType)


def _names_with(key: str, model: type[pydantic.BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        if name == key:
            yield prefix + name
        section = _without_none(field.annotation)
        if isinstance(section, type) and issubclass(section, pydantic.BaseModel):
            yield from _names_with(key, section, f"{prefix}{name}.")
