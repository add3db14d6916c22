"""Runs a pipeline on this machine, node after node."""

import pathlib
from collections.abc import Mapping

from tfx import v1 as tfx
from tfx.orchestration.portable import tfx_runner
from tfx.proto.orchestration import pipeline_pb2

from tfx_perf import isolate
from tfx_perf.components import early_imports
from tfx_perf.core import console, errors
from tfx_perf.pipelines import parameters as runtime_parameters
from tfx_perf.pipelines import progress


def run(
    pipeline: tfx.dsl.Pipeline,
    parameters: Mapping[str, runtime_parameters.Value] | None = None,
    *,
    runner_class: type[tfx_runner.IrBasedRunner] = tfx.orchestration.LocalDagRunner,
) -> None:
    """Runs the pipeline in this process; nodes ended by Ctrl-C or SIGTERM are marked as failed.

    Args:
        pipeline: has a metadata connection; the folder of a SQLite file need not exist yet.
        parameters: values of runtime parameters, by name, e.g. `{"train_steps": 500}`.
        runner_class: one of TFX's runners of compiled pipelines, e.g. `BeamDagRunner`.

    Raises:
        UserError: the pipeline has no metadata connection, or a parameter is wrong.
    """
    connection = pipeline.metadata_connection_config
    if connection is None:
        raise errors.UserError(
            "Expected a pipeline with a metadata connection, which a local run needs. "
            f"Received: metadata_connection_config=None in pipeline "
            f"{pipeline.pipeline_info.pipeline_name}. "
            "Give it one, e.g. sqlite_metadata_connection_config(path)."
        )
    console.end_without_collection()
    if database := progress.database_of(connection):
        pathlib.Path(database).parent.mkdir(parents=True, exist_ok=True)

    class _Bound(runner_class):
        """TFX's runner, which itself does not accept values of parameters."""

        def run_with_ir(
            self,
            pipeline: pipeline_pb2.Pipeline,
            run_options: pipeline_pb2.RunOptions | None = None,
        ) -> None:
            runtime_parameters.bind(pipeline, parameters or {})
            for node in pipeline.nodes:  # before ML Metadata starts its threads
                early_imports.begin(node.pipeline_node.node_info.type.name)
            super().run_with_ir(pipeline, run_options)

    try:
        with progress.interruptions_recorded():
            _Bound().run(pipeline)
    finally:
        isolate.release_server()
