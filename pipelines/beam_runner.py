"""Runs a pipeline as one Beam pipeline, whose steps are the nodes."""

from collections.abc import Mapping

from tfx import v1 as tfx
from tfx.orchestration.beam import beam_dag_runner

from tfx_perf.pipelines import local_runner
from tfx_perf.pipelines import parameters as runtime_parameters


def run(
    pipeline: tfx.dsl.Pipeline, parameters: Mapping[str, runtime_parameters.Value] | None = None
) -> None:
    """Runs the pipeline as `local_runner.run` does, with TFX's BeamDagRunner."""
    local_runner.run(pipeline, parameters, runner_class=beam_dag_runner.BeamDagRunner)
