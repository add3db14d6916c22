"""Settings that a user gives: read from YAML, and what is wrong with them in one line."""

import difflib
import pathlib
import re
import textwrap
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import pydantic
import yaml

from tfx_perf import errors

_LAST_PORT = 65535
_VALUE_LENGTH = 200  # of a received value that is said

# What pydantic's own checks ask for, by their names.
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


class _OnceLoader(yaml.SafeLoader):
    """Refuses a key that is there twice, of which YAML's own loaders drop the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Returns a mapping."""
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key!r} is there twice", problem_mark=key_node.start_mark
                )
            seen.add(str(key))
        return super().construct_mapping(node, deep=deep)


def read_yaml(path: str | pathlib.Path) -> Any:
    """Returns what a YAML file holds.

    Raises:
        UserError: the file cannot be read or is not YAML.
    """
    try:
        text = pathlib.Path(path).read_bytes()  # whose encoding the loader finds out
        return yaml.load(text, Loader=_OnceLoader)  # noqa: S506 (it is a SafeLoader)
    except (OSError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise errors.UserError(
            f"Expected a readable YAML file. Received: path={path} ({reason})."
        ) from error


def grpc_address(text: str) -> tuple[str, int]:
    """Returns host and port of `grpc://HOST:PORT`.

    Raises:
        ValueError: it is something else.
    """
    match = re.fullmatch(r"grpc://([^\s/:@\[\]]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})", text)
    if not match or not 0 < int(match[2]) <= _LAST_PORT:
        raise ValueError("expected grpc://HOST:PORT")
    return match[1].strip("[]"), int(match[2])


def explain(
    error: pydantic.ValidationError, *, model: type[pydantic.BaseModel], source: str
) -> str:
    """Returns pydantic's first complaint as one line: what was expected where, what was received.

    Args:
        error: what `model_validate` raised.
        model: the model that it validated.
        source: what to call the settings, e.g. the file's path.
    """
    first = error.errors()[0]
    location, given = first["loc"], first["input"]
    where = _name(location)
    if first["type"] == "extra_forbidden":
        known = _known_keys(model, location[:-1])
        like = difflib.get_close_matches(str(location[-1]), known, n=1)
        remedy = f" Did you mean {like[0]}?" if like else ""
        return (
            f"Expected one of the keys {', '.join(known)} in {source}. "
            f"Received: {where}={_brief(given)}.{remedy}"
        )
    if first["type"] == "missing":
        return (
            f"Expected the key {location[-1]} in {source}. "
            f"Received: {_name(location[:-1])}={_brief(given)}. Set {where}."
        )
    return f"Expected {expected(first)} in {source}. Received: {where}={_brief(given)}."


def expected(complaint: Mapping[str, Any]) -> str:
    """Returns what one of pydantic's complaints asks for, in our words.

    Args:
        complaint: one of `ValidationError.errors()`.
    """
    kind = complaint["type"]
    for name, words in _EXPECTATIONS.items():
        if kind == name:
            return words.format(**complaint.get("ctx", {}))
    # Of our own validators, or of a kind that no setting has.
    return re.sub(
        r"^(Value error, |Assertion failed, |Input should be (?=\S))", "", complaint["msg"]
    )


def _name(location: Sequence[int | str]) -> str:
    return ".".join(map(str, location)) or "settings"


def _brief(value: Any) -> str:
    return textwrap.shorten(repr(value), _VALUE_LENGTH, placeholder=" ...")


def _known_keys(model: type[pydantic.BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Returns the keys of the model that stands at a location within another one."""
    annotation: Any = model
    for part in location:
        fields = getattr(annotation, "model_fields", None)
        # A key of a mapping is no field: its type is the last argument of `Mapping[str, X]`.
        annotation = fields[part].annotation if fields else typing.get_args(annotation)[-1]
        alternatives = typing.get_args(annotation)
        if types.NoneType in alternatives:
            annotation = next(each for each in alternatives if each is not types.NoneType)
    return sorted(annotation.model_fields)
