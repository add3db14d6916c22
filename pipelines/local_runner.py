"""Runs a pipeline on this machine, node after node."""

from collections.abc import Mapping

from tfx import v1 as tfx

from tfx_perf.pipelines import parameters as runtime_parameters
from tfx_perf.pipelines import progress, running

_PULSE_SECONDS = 1.0  # for a status line that is overwritten


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


def run_timed(pipeline: tfx.dsl.Pipeline, *, progress_path: str) -> dict[str, float]:
    """Runs the pipeline as `run` does, and says in a file how far it is.

    Args:
        pipeline: see `run`.
        progress_path: of the file; see `progress.shown`.

    Returns:
        The wall time of each node in seconds.
    """
    with (
        open(progress_path, "w", encoding="utf-8") as terminal,
        progress.shown(
            terminal, pulse_seconds=_PULSE_SECONDS, longest_pulse_seconds=_PULSE_SECONDS
        ) as nodes,
    ):
        run(pipeline)
    return {node.name: node.seconds for node in nodes}
