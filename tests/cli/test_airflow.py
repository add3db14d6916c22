"""`tfx-perf airflow deploy`."""

import json
import pathlib
import sys

import pytest

from tests import processes

_MODULE = """
from tfx import v1 as tfx

def create_pipeline():
    connection = tfx.orchestration.metadata.sqlite_metadata_connection_config("metadata.sqlite")
    gen = tfx.components.CsvExampleGen(input_base="data")
    return tfx.dsl.Pipeline(
        "mine", "artifacts", components=[gen], metadata_connection_config=connection
    )

def nothing():
    print("noise on standard output")
"""


@pytest.fixture
def project(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "my_pipeline.py").write_text(_MODULE)
    (tmp_path / "settings.yaml").write_text("schedule: '@daily'\ndefault_args: {retries: 3}\n")
    (tmp_path / "dags").mkdir()
    return tmp_path


@pytest.fixture(params=["call_command", pytest.param("run_command", marks=pytest.mark.slow)])
def command(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """Runs a command in this process, which has loaded TFX, and in a separate one as users do."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield request.getfixturevalue(request.param)
    sys.modules.pop("my_pipeline", None)


def test_a_function_is_deployed_with_settings(command, project):
    done = command(
        "airflow", "deploy", "my_pipeline:create_pipeline", "--project", project,
        "--dags-folder", project / "dags", "--settings", project / "settings.yaml", "--json",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    folder = project / "dags" / "mine"
    assert json.loads(done.stdout) == {"dag_id": "mine", "folder": str(folder)}
    topology = json.loads((folder / "topology.json").read_text())
    assert topology["dag"]["schedule"] == "@daily"
    assert topology["default_args"] == {"retries": 3}
    assert topology["nodes"][0]["environment"]["PYTHONPATH"] == str(project)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reference", "received"),
    [
        ("my_pipeline:nothing", "gives a NoneType"),
        ("my_pipeline:other", "my_pipeline:other"),
        ("no_module:x", "No module named"),
    ],
)
def test_a_wrong_pipeline_is_one_line_and_exit_code_2(run_command, project, reference, received):
    done = run_command(
        "airflow", "deploy", reference, "--project", project, "--dags-folder", project / "dags"
    )
    assert done.returncode == 2  # noqa: PLR2004
    assert done.stdout == ""
    *printed, line = done.stderr.splitlines()
    assert printed == (["noise on standard output"] if "nothing" in reference else [])
    assert received in line
    assert list((project / "dags").iterdir()) == []


_DEPLOY = """
import sys
from tfx_perf.core import errors
from tfx_perf.cli import main
try:
    main.cli.main(
        ["airflow", "deploy", "my_pipeline:create_pipeline", *sys.argv[1:]], standalone_mode=False
    )
except errors.UserError as error:
    print(error)
print(sorted({"tfx", "tensorflow", "my_pipeline"} & sys.modules.keys()))
"""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "Received: AIRFLOW_HOME={home}, and there is no {home}/airflow.db"),
        (["--dags-folder", "{home}/dags"], "Received: dags_folder={home}/dags"),
    ],
)
def test_missing_airflow_is_reported_before_tfx_is_imported(project, options, words):
    home = project / "nowhere"
    arguments = [option.format(home=home) for option in options]
    done = processes.python(
        "-c", _DEPLOY, *arguments, cwd=project, check=True, environment={"AIRFLOW_HOME": str(home)}
    )
    said, imported = done.stdout.splitlines()
    assert words.format(home=home) in said
    assert imported == "[]"
