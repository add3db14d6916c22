"""Cases as JSON: what all kinds of drawn cases have in common."""

import dataclasses
import json
import typing
from typing import Any, TypeVar

_Kind = TypeVar("_Kind", bound="JsonCase")


@dataclasses.dataclass(frozen=True)
class JsonCase:
    """A frozen dataclass whose defaults are the simplest case; fields may be such classes too."""

    def to_json(self) -> str:
        """Returns one line with what differs from the simplest case."""
        return json.dumps(_changed(self))

    @classmethod
    def from_json(cls: type[_Kind], text: str) -> _Kind:
        """Returns the case that `to_json` wrote."""
        return _restored(cls, json.loads(text))


def _changed(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_changed(item) for item in value]
    if not isinstance(value, JsonCase):
        return value
    simplest = type(value)()
    return {
        field.name: _changed(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if getattr(value, field.name) != getattr(simplest, field.name)
    }


def _restored(kind: Any, value: Any) -> Any:
    if isinstance(value, list):
        item = (*typing.get_args(kind), None)[0]
        return tuple(_restored(item, each) for each in value)
    if isinstance(kind, type) and issubclass(kind, JsonCase):
        kinds = typing.get_type_hints(kind)
        return kind(**{name: _restored(kinds[name], each) for name, each in value.items()})
    return value
