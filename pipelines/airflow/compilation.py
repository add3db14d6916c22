"""Compiles a pipeline to TFX's intermediate representation and checks what Airflow can run."""

import re

from tfx import v1 as tfx
from tfx.dsl.compiler import compiler
from tfx.dsl.components.base import base_component
from tfx.orchestration import pipeline
from tfx.proto.orchestration import pipeline_pb2

from tfx_perf import console, errors
from tfx_perf.pipelines.airflow import representation

# Airflow's rule for ids; they are also names of folders here.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


def compile_pipeline(source: tfx.dsl.Pipeline) -> pipeline_pb2.Pipeline:
    """Compiles a pipeline.

    Raises:
        UserError: Airflow refuses its name or a node's id, it has no ML Metadata, a part that only
            other orchestrators run, or a module file that cannot be packed.
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
    _pack_module_files(source)
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


def _pack_module_files(source: tfx.dsl.Pipeline) -> None:
    """Has TFX pack module files into the pipeline's root, as its own runners do.

    The name of such a package has a digest of the code, so that an edit is not answered from cache.
    """
    try:
        with console.output_to_error():  # setuptools says much
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
            f"Expected a {kind} name that Airflow takes: at most 200 letters, digits, '_', '-' and "
            f"'.', the first a letter or digit. Received: {kind}={name!r}."
        )
