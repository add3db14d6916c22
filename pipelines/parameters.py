"""Values for the runtime parameters of a compiled pipeline."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from google.protobuf import message
from tfx.dsl.compiler import constants
from tfx.dsl.components.base import base_node
from tfx.orchestration import data_types
from tfx.orchestration.portable import runtime_parameter_utils
from tfx.proto.orchestration import pipeline_pb2

from tfx_perf.core import errors

Value = int | float | str

_TYPES = {
    pipeline_pb2.RuntimeParameter.INT: int,
    pipeline_pb2.RuntimeParameter.DOUBLE: float,
    pipeline_pb2.RuntimeParameter.STRING: str,
}


def declared(pipeline: pipeline_pb2.Pipeline) -> dict[str, type]:
    """Returns the type of each runtime parameter of a compiled pipeline that a run may set."""
    types = {parameter.name: _TYPES[parameter.type] for parameter in _parameters(pipeline)}
    types.pop(constants.PIPELINE_RUN_ID_PARAMETER_NAME, None)  # the runner's own
    return types


def written(nodes: Iterable[base_node.BaseNode]) -> dict[str, data_types.RuntimeParameter]:
    """Returns nodes' runtime parameters by name, with descriptions and defaults, even if 0."""
    return {
        value.name: value
        for node in nodes
        for value in node.exec_properties.values()
        if isinstance(value, data_types.RuntimeParameter)
    }


def bind(pipeline: pipeline_pb2.Pipeline, values: Mapping[str, Value]) -> None:
    """Sets parameters in the compiled pipeline itself; the others take their defaults."""
    runtime_parameter_utils.substitute_runtime_parameter(pipeline, typed(pipeline, values))


def typed(pipeline: pipeline_pb2.Pipeline, values: Mapping[str, Value]) -> dict[str, Value]:
    """Returns parameters' values in their declared types; text is converted."""
    types = declared(pipeline)
    converted = {}
    for name, value in values.items():
        if name not in types:
            raise errors.UserError(
                f"Expected a parameter of the pipeline, {', '.join(sorted(types))}. "
                f"Received: parameter={name}. {errors.did_you_mean(name, types)}".rstrip()
            )
        converted[name] = _convert(name, value, types[name])
    return converted


def _convert(name: str, value: Value, expected: type) -> Value:
    try:
        if expected is int and isinstance(value, float) and not value.is_integer():
            raise ValueError("it would be cut off")
        return expected(value)
    except ValueError as error:
        raise errors.UserError(
            f"Expected a value of type {expected.__name__}. Received: {name}={value}."
        ) from error


def _parameters(part: message.Message) -> Iterator[pipeline_pb2.RuntimeParameter]:
    if isinstance(part, pipeline_pb2.RuntimeParameter):
        yield part
        return
    for _, value in part.ListFields():
        for item in _items(value):
            if isinstance(item, message.Message):
                yield from _parameters(item)


def _items(value: Any) -> Iterable[Any]:
    """Returns the values of a field: a single value, a list, or the values of a map."""
    if isinstance(value, message.Message | str | bytes) or not isinstance(value, Iterable):
        return [value]
    return value.values() if isinstance(value, Mapping) else value
