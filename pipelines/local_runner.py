"""Runs a pipeline on this machine, with SQLite as ML Metadata."""

import pathlib

from tfx import v1 as tfx


def run(pipeline: tfx.dsl.Pipeline) -> None:
    """Runs the pipeline in this process, node after node.

    Args:
        pipeline: with a SQLite connection whose folder may not exist yet.
    """
    database = pathlib.Path(pipeline.metadata_connection_config.sqlite.filename_uri)
    database.parent.mkdir(parents=True, exist_ok=True)
    tfx.orchestration.LocalDagRunner().run(pipeline)
