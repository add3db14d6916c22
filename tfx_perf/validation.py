"""Settings that a user gives: read from YAML, and what is wrong with them in one line."""

import pathlib
import re
import types
import typing
from typing import Any

import pydantic
import yaml

from tfx_perf import errors

_LAST_PORT = 65535


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
    """Returns pydantic's first complaint as one line: where, expected, received.

    Args:
        error: what `model_validate` raised.
        model: the model that it validated.
        source: what to call the settings, e.g. the file's path.
    """
    first = error.errors()[0]
    location = first["loc"]
    where = ".".join(str(part) for part in location) or "settings"
    if first["type"] == "extra_forbidden":
        known = ", ".join(_known_keys(model, location[:-1]))
        return f"{source}: expected one of the keys {known}. Received: {where}={first['input']!r}."
    expectation = first["msg"].removeprefix("Value error, ")
    return f"{source}: wrong value, {expectation}. Received: {where}={first['input']!r}."


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
