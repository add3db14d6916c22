"""A node that Ctrl-C or SIGTERM ends has failed in ML Metadata, whoever has run the pipeline.

How it is marked: `tfx_perf.pipelines.progress.interruptions_recorded`.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time

import ml_metadata
import pytest
from ml_metadata.proto import metadata_store_pb2 as mlmd

_SCRIPT = """
import runner_components
from tfx import v1 as tfx
from tfx.orchestration.beam import beam_dag_runner
from tfx_perf.pipelines import local_runner
sqlite = tfx.orchestration.metadata.sqlite_metadata_connection_config
pipeline = tfx.dsl.Pipeline(
    pipeline_name="one", pipeline_root="artifacts",
    components=[runner_components.Wait(began="began")],
    metadata_connection_config=sqlite("metadata.sqlite"),
)
if __name__ == "__main__":
    RUN
"""
_ON_BEAM = "local_runner.run(pipeline, runner_class=beam_dag_runner.BeamDagRunner)"
_BY_TFX = "tfx.orchestration.LocalDagRunner().run(pipeline)"
_START_SECONDS = 120
_OURS, _COMMAND = [sys.executable], [sys.executable, "-m", "tfx_perf", "run"]


@pytest.mark.slow_where("Ctrl-C", "our runner", "Beam")
@pytest.mark.parametrize(
    ("command", "run", "number", "code"),
    [
        (_COMMAND, _BY_TFX, signal.SIGTERM, -signal.SIGTERM),
        (_COMMAND, "local_runner.run(pipeline)", signal.SIGINT, 130),
        (_OURS, "local_runner.run(pipeline)", signal.SIGTERM, -signal.SIGTERM),
        (_OURS, _ON_BEAM, signal.SIGTERM, -signal.SIGTERM),
    ],
    ids=["TFX's runner in tfx-perf run", "Ctrl-C", "our runner", "Beam"],
)
def test_an_interrupted_node_has_failed(tmp_path, command, run, number, code):
    (tmp_path / "script.py").write_text(_SCRIPT.replace("RUN", run))
    paths = [str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    with open(tmp_path / "output.txt", "wb") as output:
        process = subprocess.Popen(
            [*command, "script.py"], cwd=tmp_path, stdout=output, stderr=output,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )  # fmt: skip
    try:
        _wait_for(tmp_path / "began", process)
        assert _states(tmp_path) == ["RUNNING"]
        process.send_signal(number)
        assert process.wait(timeout=60) == code, (tmp_path / "output.txt").read_text()
    finally:
        process.kill()
    assert _states(tmp_path) == ["FAILED"]


def _wait_for(path: pathlib.Path, process: subprocess.Popen) -> None:
    limit = time.monotonic() + _START_SECONDS
    while not path.exists():
        assert process.poll() is None, "the pipeline has ended"
        assert time.monotonic() < limit, "no node has begun"
        time.sleep(0.05)


def _states(folder: pathlib.Path) -> list[str]:
    connection = mlmd.ConnectionConfig()
    connection.sqlite.filename_uri = str(folder / "metadata.sqlite")
    store = ml_metadata.MetadataStore(connection)
    executions = store.get_executions()
    return [mlmd.Execution.State.Name(each.last_known_state) for each in executions]
