"""The steps of training as a property of their own, which a run can set.

`train_args` is one JSON text to TFX, in which no orchestrator can change a number.
"""

from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from tfx.proto import trainer_pb2
from tfx.types import component_spec, standard_component_specs
from tfx.utils import proto_utils

from tfx_perf import errors

_KEY = "train_steps"

# For the PARAMETERS of a ComponentSpec.
PARAMETERS = {_KEY: component_spec.ExecutionParameter(type=int, optional=True)}


def resolved(exec_properties: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the properties with `train_steps`, if it is given, put into `train_args`.

    Args:
        exec_properties: `train_args` (JSON) and possibly `train_steps`.

    Raises:
        UserError: `train_steps` is not positive.
    """
    properties = dict(exec_properties)
    steps = properties.pop(_KEY, None)
    if steps is None:
        return properties
    if steps < 1:
        raise errors.UserError(f"Expected at least one step. Received: {_KEY}={steps}.")
    key = standard_component_specs.TRAIN_ARGS_KEY
    arguments = json_format.Parse(properties[key], trainer_pb2.TrainArgs())
    arguments.num_steps = steps
    properties[key] = proto_utils.proto_to_json(arguments)
    return properties
