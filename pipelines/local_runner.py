"""Runs a pipeline on this machine, node after node."""

from collections.abc import Mapping

from tfx import v1 as tfx

from tfx_perf.pipelines import parameters as runtime_parameters
from tfx_perf.pipelines import running


def run(
    pipeline: tfx.dsl.Pipeline,
    parameters: Mapping[str, runtime_parameters.Value] | None = None,
) -> None:
    """Runs the pipeline in this process with TFX's LocalDagRunner.

    Args:
        pipeline: with a metadata connection; the folder of a SQLite file need not exist yet.
        parameters: values of runtime parameters, by name, e.g. `{"train_steps": 500}`.

    Raises:
        UserError: the pipeline has no metadata connection, or a parameter is wrong.
    """
    running.run_with(tfx.orchestration.LocalDagRunner, pipeline, parameters)
