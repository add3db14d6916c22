"""A pipeline prepared for Airflow: compiled, checked, and described for the DAG file."""

import base64
import datetime
import gzip
import json
import os
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import Any

from google.protobuf import json_format
from tfx.dsl.compiler import compiler, constants
from tfx.dsl.components.base import base_component
from tfx.orchestration import pipeline as tfx_pipeline

# Imported because a pipeline's deployment_config contains their messages.
from tfx.proto.orchestration import (  # noqa: F401
    executable_spec_pb2,
    local_deployment_config_pb2,
    metadata_pb2,
    pipeline_pb2,
)

from tfx_perf.core import console, errors, validation
from tfx_perf.pipelines import parameters
from tfx_perf.pipelines.airflow.settings import AirflowSettings, TaskSettings

SCHEMA = "tfx_perf.airflow/1"

# Airflow's rule for ids; they are also names of folders here.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
# JSON Schema's names of types, by which Airflow checks a run's values.
_TYPE_NAMES = {int: "integer", float: "number", str: "string"}
_DATA_PREFIX = "data:application/gzip;base64,"


def compile_pipeline(source: tfx_pipeline.Pipeline) -> pipeline_pb2.Pipeline:
    """Compiles a pipeline; a `UserError` says what in it Airflow cannot run."""
    _check_name("pipeline", source.pipeline_info.pipeline_name)
    if source.metadata_connection_config is None:
        raise errors.UserError(
            "Expected a pipeline with a connection to ML Metadata. "
            "Received: metadata_connection_config=None; give Pipeline one."
        )
    if source.execution_mode != tfx_pipeline.ExecutionMode.SYNC:
        raise errors.UserError(
            "Expected a synchronous pipeline. "
            f"Received: execution_mode={source.execution_mode.name}; Airflow runs only those."
        )
    _pack_module_files(source)
    ir = compiler.Compiler().compile(source)
    for entry in ir.nodes:
        if entry.WhichOneof("node") != "pipeline_node":
            inner = entry.sub_pipeline.pipeline_info.id
            raise errors.UserError(
                "Expected a pipeline of components. "
                f"Received: {inner}, a pipeline inside it; deploy that one on its own."
            )
    for node in nodes_of(ir):
        _check_name("node", node.node_info.id)
    return ir


def _pack_module_files(source: tfx_pipeline.Pipeline) -> None:
    """Packs module files into the pipeline's root, named by a digest of the code, as TFX does."""
    try:
        with console.output_to_error():  # setuptools prints a lot
            for component in source.components:
                if isinstance(component, base_component.BaseComponent):
                    component._resolve_pip_dependencies(source.pipeline_info.pipeline_root)
    except (ValueError, RuntimeError, OSError) as error:
        raise errors.UserError(
            "Expected module files that TFX can pack into the pipeline's root. "
            f"Received: {errors.in_one_line(error)}"
        ) from error


def _check_name(kind: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise errors.UserError(
            f"Expected a {kind} name that Airflow accepts: at most 200 letters, digits, '_', '-' "
            f"and '.', the first a letter or digit. Received: {kind}={name!r}."
        )


def topology_of(
    source: tfx_pipeline.Pipeline, ir: pipeline_pb2.Pipeline, *, settings: AirflowSettings
) -> dict[str, Any]:
    """Returns the document that `dag.py` builds the DAG from."""
    nodes = list(nodes_of(ir))
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


def topology_as_json(topology: dict[str, Any]) -> str:
    """Returns the document as JSON; durations become `{"duration_seconds": ...}`."""
    return json.dumps(topology, indent=1, default=_plain) + "\n"


def _node(
    node: pipeline_pb2.PipelineNode, ir: pipeline_pb2.Pipeline, settings: AirflowSettings
) -> dict[str, Any]:
    node_id = node.node_info.id
    node_settings = settings.nodes.get(node_id, TaskSettings())
    environment = {**settings.default_args.environment, **node_settings.environment}
    if settings.python_path:
        environment["PYTHONPATH"] = os.pathsep.join(settings.python_path)
    described = {
        "id": node_id,
        "upstream": list(node.upstream_nodes),
        "environment": environment,
        "arguments": node_settings.arguments(),
    }
    if settings.container:
        # A container has no dags folder to read pipeline.json from.
        described["pipeline"] = as_data_uri(ir, node_id=node_id)
    return described


def _parameters(
    source: tfx_pipeline.Pipeline, ir: pipeline_pb2.Pipeline, settings: AirflowSettings
) -> list[dict[str, Any]]:
    """Returns name, type, default and description of every runtime parameter."""
    written = parameters.written(source.components)
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


def nodes_of(ir: pipeline_pb2.Pipeline) -> Iterator[pipeline_pb2.PipelineNode]:
    """Yields the nodes in topological order."""
    for entry in ir.nodes:
        yield entry.pipeline_node


def pipeline_as_json(ir: pipeline_pb2.Pipeline) -> str:
    """Returns the pipeline as JSON."""
    return json_format.MessageToJson(ir, sort_keys=True) + "\n"


def as_data_uri(ir: pipeline_pb2.Pipeline, *, node_id: str) -> str:
    """Returns the pipeline with a single node, for an environment variable and without braces."""
    single = pipeline_pb2.Pipeline()
    single.CopyFrom(ir)
    del single.nodes[:]
    single.nodes.extend(entry for entry in ir.nodes if entry.pipeline_node.node_info.id == node_id)
    text = json_format.MessageToJson(single, indent=None)
    return _DATA_PREFIX + base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def read(source: str) -> pipeline_pb2.Pipeline:
    """Reads a pipeline from a file of `pipeline_as_json`, or from a data URI of `as_data_uri`."""
    try:
        if source.startswith(_DATA_PREFIX):
            text = gzip.decompress(base64.b64decode(source.removeprefix(_DATA_PREFIX))).decode()
        else:
            text = pathlib.Path(source).read_text("utf-8")
        return json_format.Parse(text, pipeline_pb2.Pipeline())
    except (OSError, ValueError, json_format.ParseError) as error:
        reason = " ".join(str(error).split())[:200]
        raise errors.UserError(
            f"Expected a pipeline that was deployed to Airflow. Received: pipeline={source[:200]} "
            f"({reason}); deploy it again."
        ) from error
