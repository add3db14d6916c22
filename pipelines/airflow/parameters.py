"""A pipeline's runtime parameters: their types and defaults, and the values of a run."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf import message
from tfx.dsl.compiler import constants
from tfx.proto.orchestration import pipeline_pb2

from tfx_perf import errors

# TFX's own, which every pipeline has.
_OF_TFX = {constants.PIPELINE_ROOT_PARAMETER_NAME, constants.PIPELINE_RUN_ID_PARAMETER_NAME}

_Value = int | float | str


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A runtime parameter of a pipeline.

    Attributes:
        name: as in `RuntimeParameter(name=...)`.
        kind: JSON Schema's name of its type: `integer`, `number` or `string`.
    """

    name: str
    kind: str

    def check(self, value: Any) -> _Value:
        """Returns a value in the parameter's type; an integer is also a number.

        Raises:
            UserError: it has another type.
        """
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if self.kind == "number" and is_number:
            return float(value)
        if self.kind == "integer" and is_number and value == int(value):
            return int(value)
        if self.kind == "string" and isinstance(value, str):
            return value
        raise errors.UserError(
            f"Expected a value of type {self.kind} for the parameter {self.name}. "
            f"Received: {self.name}={value!r}."
        )


_KINDS = {
    pipeline_pb2.RuntimeParameter.INT: "integer",
    pipeline_pb2.RuntimeParameter.DOUBLE: "number",
    pipeline_pb2.RuntimeParameter.STRING: "string",
}


def parameters_of(ir: pipeline_pb2.Pipeline) -> dict[str, Parameter]:
    """Returns the runtime parameters that the pipeline's author has defined, by name."""
    found = {item.name: Parameter(item.name, _KINDS[item.type]) for item in _occurrences(ir)}
    return {name: found[name] for name in sorted(found) if name not in _OF_TFX}


def checked(ir: pipeline_pb2.Pipeline, values: Mapping[str, Any]) -> dict[str, _Value]:
    """Returns the values of a run in the types that the pipeline declares.

    Raises:
        UserError: a value has another type, or the pipeline has no such parameter.
    """
    known = parameters_of(ir)
    for name in values:
        if name not in known:
            raise errors.UserError(
                f"Expected one of the pipeline's parameters: {', '.join(known) or 'it has none'}. "
                f"Received: {name}={values[name]!r}."
            )
    return {name: known[name].check(value) for name, value in values.items()}


def _occurrences(part: message.Message) -> Iterator[pipeline_pb2.RuntimeParameter]:
    """Yields every mention of a runtime parameter below a message."""
    if isinstance(part, pipeline_pb2.RuntimeParameter):
        yield part
        return
    for field, value in part.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            inner = [value[key] for key in value]
        else:
            inner = value if field.label == field.LABEL_REPEATED else [value]
        for each in inner:
            if isinstance(each, message.Message):
                yield from _occurrences(each)
