"""What the DAG file needs to know of a pipeline, as a small JSON document."""

import datetime
import json
import os
import sys
from typing import Any

from tfx import v1 as tfx
from tfx.dsl.compiler import constants
from tfx.orchestration import data_types
from tfx.proto.orchestration import pipeline_pb2

from tfx_perf import errors
from tfx_perf.pipelines import parameters
from tfx_perf.pipelines.airflow import representation
from tfx_perf.pipelines.airflow.settings import AirflowSettings
from tfx_perf.settings import validation

SCHEMA = "tfx_perf.airflow/1"

# JSON Schema's names, which Airflow checks a run's values with.
_TYPE_NAMES = {int: "integer", float: "number", str: "string"}


def topology_of(
    source: tfx.dsl.Pipeline, ir: pipeline_pb2.Pipeline, *, settings: AirflowSettings
) -> dict[str, Any]:
    """Returns the document that `dag.py` builds the DAG from.

    Args:
        source: the pipeline.
        ir: what it was compiled to.
        settings: of the DAG and its tasks.

    Raises:
        UserError: the settings name a node or parameter that the pipeline has not, or a
            scheduled run would lack the value of a parameter.
    """
    nodes = list(representation.nodes_of(ir))
    validation.check_nodes(settings.nodes, [node.node_info.id for node in nodes])
    python = settings.python or ("python" if settings.container else sys.executable)
    return {
        "schema": SCHEMA,
        "dag": {"dag_id": ir.pipeline_info.id, **settings.dag_arguments()},
        "default_args": settings.default_args.arguments(),
        "parameters": _parameters(source, ir, settings),
        "python": python,
        "container": settings.container.model_dump() if settings.container else None,
        "nodes": [_node(node, ir, settings) for node in nodes],
    }


def as_json(topology: dict[str, Any]) -> str:
    """Returns the document as JSON; durations become `{"duration_seconds": ...}`."""
    return json.dumps(topology, indent=1, default=_plain) + "\n"


def _node(
    node: pipeline_pb2.PipelineNode, ir: pipeline_pb2.Pipeline, settings: AirflowSettings
) -> dict[str, Any]:
    node_id = node.node_info.id
    own = settings.of_node(node_id)
    environment = {**settings.default_args.environment, **own.environment}
    if settings.python_path:
        environment["PYTHONPATH"] = os.pathsep.join(settings.python_path)
    described = {
        "id": node_id,
        "upstream": list(node.upstream_nodes),
        "environment": environment,
        "arguments": own.arguments(),
    }
    if settings.container:
        # A container has no dags folder to read pipeline.json from.
        described["pipeline"] = representation.as_data_uri(ir, node_id=node_id)
    return described


def _parameters(
    source: tfx.dsl.Pipeline, ir: pipeline_pb2.Pipeline, settings: AirflowSettings
) -> list[dict[str, Any]]:
    """Returns name, type, default and description of every runtime parameter.

    The author's own objects are asked, since the compiled pipeline has neither descriptions nor
    the defaults 0 and "".
    """
    written = {
        value.name: value
        for node in source.components
        for value in node.exec_properties.values()
        if isinstance(value, data_types.RuntimeParameter)
    }
    defaults = {name: value.default for name, value in written.items()}
    defaults[constants.PIPELINE_ROOT_PARAMETER_NAME] = source.pipeline_info.pipeline_root
    defaults.update(parameters.typed(ir, settings.parameters))
    declared = parameters.declared(ir)
    for name in declared:
        if defaults.get(name) is None and settings.schedule is not None:
            raise errors.UserError(
                "Expected a default for every parameter of a scheduled pipeline. "
                f"Received: {name}=None; set parameters.{name}."
            )
    return [
        {
            "name": name,
            "type": _TYPE_NAMES[kind],
            "default": defaults.get(name),
            "description": getattr(written.get(name), "description", None),
        }
        for name, kind in sorted(declared.items())
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        return {"duration_seconds": value.total_seconds()}
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    raise TypeError(f"{type(value)} has no JSON form")
