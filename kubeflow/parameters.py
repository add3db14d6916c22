"""The parameters of a run: declared in the pipeline, given by a person."""

import json
from collections.abc import Mapping
from typing import Any

from tfx_perf import errors

# Type of the parameter to the Python types that JSON may give for it.
_TYPES: dict[str, tuple[type, ...]] = {
    "NUMBER_INTEGER": (int,),
    "NUMBER_DOUBLE": (int, float),
    "BOOLEAN": (bool,),
    "LIST": (list,),
    "STRUCT": (dict,),
}


def declared(spec: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the declared parameters of a pipeline spec.

    Args:
        spec: as in a file, or as the server returns it, with the platform spec beside it.
    """
    spec = spec or {}
    spec = spec.get("pipeline_spec", spec)
    return spec.get("root", {}).get("inputDefinitions", {}).get("parameters", {})


def checked(given: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the parameters with the declared types.

    Args:
        given: name to value; text is converted.
        definitions: from `declared`.

    Raises:
        UserError: a parameter is unknown, has the wrong type, or is missing without a default.
    """
    for name in given:
        if name not in definitions:
            known = ", ".join(sorted(definitions)) or "there are none"
            raise errors.UserError(
                f"Expected parameters of the pipeline, {known}. Received: {name}={given[name]}."
            )
    for name, definition in definitions.items():
        if name not in given and "defaultValue" not in definition:
            raise errors.UserError(
                f"Expected a value for the parameter {name}, which has no default. Received: none."
            )
    return {name: _converted(name, value, definitions[name]) for name, value in given.items()}


def _converted(name: str, value: Any, definition: Mapping[str, Any]) -> Any:
    kind = definition.get("parameterType")
    if kind not in _TYPES:
        return str(value)
    converted = value
    if isinstance(value, str):
        try:
            converted = json.loads(value)
        except ValueError:
            converted = None
    is_bool = isinstance(converted, bool)
    if not isinstance(converted, _TYPES[kind]) or is_bool != (kind == "BOOLEAN"):
        raise errors.UserError(f"Expected a {kind} for {name}. Received: {name}={value!r}.")
    return converted
