"""`tfx run` for the engines local and airflow, with a real Airflow; takes a minute."""

import functools
import os
import pathlib
import subprocess
import sys

import airflow_environment
import pytest

from tests import processes

pytestmark = pytest.mark.slow

_COMPONENTS = """
from tfx import v1 as tfx
from tfx.types import standard_artifacts


@tfx.dsl.components.component
def Count(
    number: tfx.dsl.components.Parameter[int],
    counted: tfx.dsl.components.OutputArtifact[standard_artifacts.Integer],
) -> None:
    counted.value = number


def pipeline(folder):
    number = tfx.dsl.experimental.RuntimeParameter(name="number", ptype=int, default=1)
    connection = tfx.orchestration.metadata.sqlite_metadata_connection_config(
        f"{folder}/metadata.sqlite"
    )
    return tfx.dsl.Pipeline("light", f"{folder}/root", connection, [Count(number=number)])
"""
_RUNNERS = {
    "local": "from tfx_perf.pipelines import local_runner\nlocal_runner.run({0})\n",
    "airflow": "from tfx_perf.pipelines import airflow\nairflow.deploy({0})\n",
    "stock": "from tfx import v1 as tfx\n"
    "from tfx.orchestration.airflow import airflow_dag_runner as runner\n"
    "config = runner.AirflowPipelineConfig({{'schedule_interval': None}})\n"
    "DAG = runner.AirflowDagRunner(config).run({0})\n",
}
_BIN = pathlib.Path(sys.executable).parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A project of one component, and an Airflow home."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "light.py").write_text(_COMPONENTS)
    for name, text in _RUNNERS.items():
        definition = f"light.pipeline({str(folder)!r})"
        (folder / f"{name}_runner.py").write_text("import light\n" + text.format(definition))
    return folder


@pytest.fixture(scope="module")
def airflow() -> pathlib.Path:
    """The programs of an Airflow, beside TFX or in a separate environment."""
    own = (_BIN / "airflow").exists()
    return _BIN if own else airflow_environment.environment(airflow_environment.AIRFLOW_2)


def _call(
    folder: pathlib.Path, *arguments: str, programs: pathlib.Path = _BIN
) -> subprocess.CompletedProcess:
    environment = {
        **os.environ,
        "HOME": str(folder),
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONWARNINGS": "ignore",
    }
    return processes.run(*arguments, env=environment, cwd=folder)


def _tfx(
    folder: pathlib.Path, *arguments: str, programs: pathlib.Path = _BIN
) -> subprocess.CompletedProcess:
    return _call(folder, str(_BIN / "tfx-perf"), "tfx", *arguments, programs=programs)


def test_a_local_run(folder):
    created = _tfx(
        folder, "pipeline", "create", "--engine=local", "--pipeline-path=local_runner.py"
    )
    assert created.returncode == 0, created.stderr
    assert not (folder / "root").exists()
    done = _tfx(folder, "run", "create", "--engine=local", "--pipeline-name=light")
    assert done.returncode == 0, done.stderr
    assert list((folder / "root" / "Count").iterdir())


def test_runs_on_airflow(folder, airflow):
    migrated = _call(folder, str(airflow / "airflow"), "db", "migrate", programs=airflow)
    assert migrated.returncode == 0, migrated.stderr
    tfx = functools.partial(_tfx, folder, programs=airflow)
    engine = ("--engine", "airflow")
    named = (*engine, "--pipeline-name", "light")
    done = tfx("pipeline", "create", *engine, "--pipeline-path", "airflow_runner.py")
    assert done.returncode == 0, done.stderr

    wrong = tfx("run", "create", *named, "--runtime-parameter", "number=many")
    assert (wrong.returncode, "number=many" in wrong.stderr) == (2, True)

    done = tfx("run", "create", *named, "--runtime-parameter", "number=7")
    assert done.returncode == 0, done.stderr
    assert "Run created for pipeline: light" in done.stdout

    listed = _call(folder, "airflow", "dags", "list-runs", "-d", "light", programs=airflow)
    assert listed.returncode == 0, listed.stderr
    assert ("manual__" in listed.stdout, "queued" in listed.stdout) == (True, True)

    done = tfx("pipeline", "delete", *named)
    assert done.returncode == 0, done.stderr
    if airflow != _BIN:
        return  # TFX's own runner imports Airflow
    done = tfx("pipeline", "create", *engine, "--pipeline-path", "stock_runner.py")
    assert done.returncode == 0, done.stderr
    assert (folder / "airflow" / "dags" / "light" / "topology.json").exists()
