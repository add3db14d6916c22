"""Kinds of values that several sections have."""

import datetime
import re
from typing import Annotated, Any

import pydantic

_LAST_PORT = 65535

Positive = Annotated[float, pydantic.Field(gt=0)]
NotNegative = Annotated[float, pydantic.Field(ge=0)]
Seed = Annotated[int, pydantic.Field(ge=0, lt=2**32)]  # what NumPy takes
PositiveInt = Annotated[int, pydantic.Field(gt=0)]
Count = Annotated[int, pydantic.Field(ge=0)]
Share = Annotated[float, pydantic.Field(gt=0, le=1)]
NotEmpty = Annotated[str, pydantic.Field(min_length=1)]
# In YAML seconds, or ISO 8601 such as PT5M.
Duration = Annotated[datetime.timedelta, pydantic.Field(gt=datetime.timedelta(0))]


def _listed(value: Any) -> Any:
    return (value,) if type(value) is int else value  # which true is not


# A single number stands for a list of one.
PositiveInts = Annotated[tuple[PositiveInt, ...], pydantic.BeforeValidator(_listed)]


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
