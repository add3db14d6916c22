"""Compiles a pipeline to TFX's intermediate representation and checks what Airflow can run."""

import re

from tfx import v1 as tfx
from tfx.dsl.compiler import compiler
from tfx.orchestration import pipeline
from tfx.proto.orchestration import pipeline_pb2

from tfx_perf import errors
from tfx_perf.pipelines.airflow import representation

# Airflow's rule for ids; they are also names of folders here.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


def compile_pipeline(source: tfx.dsl.Pipeline) -> pipeline_pb2.Pipeline:
    """Compiles a pipeline.

    Raises:
        UserError: Airflow refuses its name or a node's id, it has no ML Metadata, or a part
            that only other orchestrators run.
    """
    _check_name("pipeline", source.pipeline_info.pipeline_name)
    if source.metadata_connection_config is None:
        raise errors.UserError(
            "Expected a pipeline with a connection to ML Metadata. "
            "Received: metadata_connection_config=None; give Pipeline one."
        )
    if source.execution_mode != pipeline.ExecutionMode.SYNC:
        raise errors.UserError(
            "Expected a synchronous pipeline. "
            f"Received: execution_mode={source.execution_mode.name}; Airflow runs no other."
        )
    ir = compiler.Compiler().compile(source)
    for entry in ir.nodes:
        if entry.WhichOneof("node") != "pipeline_node":
            inner = entry.sub_pipeline.pipeline_info.id
            raise errors.UserError(
                "Expected a pipeline of components. "
                f"Received: {inner}, a pipeline inside it; deploy that one on its own."
            )
    for node in representation.nodes_of(ir):
        _check_name("node", node.node_info.id)
    return ir


def _check_name(kind: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise errors.UserError(
            f"Expected a {kind} name that Airflow takes: at most 200 letters, digits, '_', '-' and "
            f"'.', the first a letter or digit. Received: {kind}={name!r}."
        )
