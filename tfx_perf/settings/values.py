"""Kinds of values that several sections have."""

import datetime
import numbers
import os
import re
from typing import Annotated, Any, TypeVar

import pydantic
import pydantic_core

_LAST_PORT = 65535

ItemT = TypeVar("ItemT")


def _whole(value: Any) -> Any:
    """Returns a whole number that is written otherwise as an int: 1e9 in YAML, NumPy's."""
    is_whole = isinstance(value, float) and value.is_integer()
    is_numpys = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return int(value) if is_whole or is_numpys else value


Whole = Annotated[int, pydantic.BeforeValidator(_whole)]
Positive = Annotated[float, pydantic.Field(gt=0)]
NotNegative = Annotated[float, pydantic.Field(ge=0)]
Seed = Annotated[Whole, pydantic.Field(ge=0, lt=2**32)]  # what NumPy takes
PositiveInt = Annotated[Whole, pydantic.Field(gt=0)]
Count = Annotated[Whole, pydantic.Field(ge=0)]
Share = Annotated[float, pydantic.Field(gt=0, le=1)]
NotEmpty = Annotated[str, pydantic.Field(min_length=1)]


def _as_text(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


# A path or URI, perhaps of another machine; and one that this machine uses, `~` being its home.
PathText = Annotated[str, pydantic.BeforeValidator(_as_text)]
LocalPath = Annotated[PathText, pydantic.AfterValidator(os.path.expanduser)]
# What neither JSON nor YAML has a type for is made of another one (`strict=False`).
Several = Annotated[tuple[ItemT, ...], pydantic.Field(strict=False)]


def _no_truth_value(value: Any) -> Any:
    if isinstance(value, bool):  # else a second or none
        raise pydantic_core.PydanticKnownError("time_delta_type")
    return value


def _no_number(value: Any) -> Any:
    if isinstance(value, (int, float)):  # else seconds since 1970
        raise pydantic_core.PydanticKnownError("datetime_type")
    return value


# In YAML seconds, or ISO 8601 such as PT5M.
Duration = Annotated[
    datetime.timedelta,
    pydantic.Field(gt=datetime.timedelta(0), strict=False),
    pydantic.BeforeValidator(_no_truth_value),
]
# In YAML a date, or ISO 8601.
Time = Annotated[
    datetime.datetime, pydantic.Field(strict=False), pydantic.BeforeValidator(_no_number)
]


def _listed(value: Any) -> Any:
    return (value,) if type(value) is int else value  # which true is not


# A single number stands for a list of one.
PositiveInts = Annotated[Several[PositiveInt], pydantic.BeforeValidator(_listed)]


def grpc_address(text: str) -> tuple[str, int]:
    """Returns host and port of `grpc://HOST:PORT`.

    Raises:
        ValueError: it is something else.
    """
    match = re.fullmatch(r"grpc://([^\s/:@\[\]]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})", text)
    if not match or not 0 < int(match[2]) <= _LAST_PORT:
        raise ValueError("grpc://HOST:PORT")
    return match[1].strip("[]"), int(match[2])


def _checked_address(text: str) -> str:
    grpc_address(text)
    return text


GrpcAddress = Annotated[str, pydantic.AfterValidator(_checked_address)]
