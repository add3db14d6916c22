"""Runs a pipeline as one Beam pipeline, whose steps are the nodes."""

from collections.abc import Mapping

from tfx import v1 as tfx
from tfx.orchestration.beam import beam_dag_runner

from tfx_perf.pipelines import parameters as runtime_parameters
from tfx_perf.pipelines import running


def run(
    pipeline: tfx.dsl.Pipeline,
    parameters: Mapping[str, runtime_parameters.Value] | None = None,
) -> None:
    """Runs the pipeline in this process with TFX's BeamDagRunner.

    Args:
        pipeline: with a metadata connection; the folder of a SQLite file need not exist yet.
        parameters: values of runtime parameters, by name, e.g. `{"train_steps": 500}`.

    Raises:
        UserError: the pipeline has no metadata connection, or a parameter is wrong.
    """
    running.run_with(beam_dag_runner.BeamDagRunner, pipeline, parameters)
