"""TFX's own commands, repaired: every command and engine, on a project made from the template.

`cli.tfx` and the script `tfx` make the `repair` first: files are run for the pipeline in them
(`catching`), templates copied by `templates.addon`.

All in one process, since TFX takes some ten seconds to import. What starts a run is in
test_tfx_runs.py.
"""

import json
import pathlib
import sys
from collections.abc import Callable, Iterator

import pytest
import tfx_call

from tfx_perf.cli import tfx as tfx_command
from tfx_perf.cli.tfx_repair import airflow, repair

_NAME = "my-orders"
Tfx = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """The path of a project from the template, to be made."""
    yield tmp_path_factory.mktemp("projects") / "orders"
    for name in [name for name in sys.modules if name.split(".")[0] in ("models", "pipeline")]:
        del sys.modules[name]  # the project's modules


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """A home of the user, and one of Airflow with a file where its database would be."""
    home = tmp_path_factory.mktemp("home")
    (home / "airflow").mkdir()
    (home / "airflow" / "airflow.db").touch()
    with pytest.MonkeyPatch.context() as patch:
        # If Airflow is installed beside TFX, importing it here would set up its logging, and absl's
        # handler would close pytest's streams. TFX's runner is in test_tfx_runs.py.
        patch.setattr(airflow.AirflowHandler, "runner", "tfx.none:Runner")
        patch.setenv("HOME", str(home))
        patch.setenv("AIRFLOW_HOME", str(home / "airflow"))
        yield home


@pytest.fixture
def tfx(homes: pathlib.Path) -> Tfx:
    """Runs `tfx` with arguments; returns exit code, output and errors."""
    del homes  # needed only as a fixture
    return tfx_call.call


@pytest.fixture
def created(tfx: Tfx, project: pathlib.Path) -> pathlib.Path:
    """The project, copied with TFX's command unless an earlier test did so."""
    if not project.exists():
        code, _, _ = tfx("template", "copy", "--model", "perf", "--pipeline-name", _NAME,
                         "--destination-path", project)  # fmt: skip
        assert code == 0
    return project


def test_templates_of_both_are_listed(tfx):
    code, out, _ = tfx("template", "list")
    assert code == 0
    assert {"- taxi", "- penguin", "- perf"} <= set(out.splitlines())


def test_templates_of_tfx_are_copied_as_before(tfx, tmp_path):
    code, out, _ = tfx("template", "copy", "--model=taxi", "--pipeline-name=x",
                       f"--destination-path={tmp_path / 'taxi'}")  # fmt: skip
    assert code == 0
    assert (tmp_path / "taxi" / "pipeline" / "pipeline.py").exists()
    assert "pipeline.py -> " in out
    code, _, err = tfx("template", "copy", "--model=taxi", "--pipeline-name=x",
                       f"--destination-path={tmp_path / 'taxi'}")  # fmt: skip
    assert code == 2
    assert err.splitlines()[-1].startswith("tfx: Expected a folder that is empty")


def test_a_template_of_ours_is_copied(created):
    assert (created / "local_runner.py").exists()


_FILES = {"local": "local_runner.py", "airflow": "airflow_runner.py"}
_WHERE = {  # files that show that a pipeline was created
    "local": f"tfx/local/{_NAME}/pipeline_args.json",
    "airflow": f"airflow/dags/{_NAME}/topology.json",
}


@pytest.mark.one_case
@pytest.mark.parametrize("engine", _FILES)
def test_a_pipeline_is_compiled_created_listed_updated_and_deleted(tfx, created, homes, engine):
    given = ("--engine", engine, "--pipeline-path", created / _FILES[engine])
    named = ("--engine", engine, "--pipeline-name", _NAME)
    code, out, err = tfx("pipeline", "compile", *given)
    assert code == 0, err
    assert "compiled successfully" in out
    assert not (homes / _WHERE[engine]).exists()

    code, out, err = tfx("pipeline", "create", *given)
    assert code == 0, err
    assert f'Pipeline "{_NAME}" created successfully.' in out
    assert (homes / _WHERE[engine]).exists()

    code, out, err = tfx("pipeline", "create", *given)
    assert code == 2
    assert _NAME in err

    if engine == "airflow":
        (homes / "airflow" / "dags" / "another_dag.py").touch()
    code, out, _ = tfx("pipeline", "list", "--engine", engine)
    assert (code, _NAME in out.splitlines(), "another_dag.py" in out) == (0, True, False)

    code, out, err = tfx("pipeline", "update", *given)
    assert code == 0, err
    assert f'Pipeline "{_NAME}" updated successfully.' in out

    code, out, err = tfx("pipeline", "delete", *named)
    assert code == 0, err
    assert "deleted successfully" in out
    assert not (homes / _WHERE[engine]).exists()

    for command in ("delete", "update"):
        code, _, err = tfx("pipeline", command, *(given if command == "update" else named))
        assert code == 2
        assert _NAME in err.strip().splitlines()[-1]


def test_a_file_is_found_again_from_another_folder(tfx, created, homes, monkeypatch):
    monkeypatch.chdir(created)
    code, _, err = tfx("pipeline", "create", "--engine=local", "--pipeline-path=local_runner.py")
    assert code == 0, err
    saved = json.loads((homes / _WHERE["local"]).read_text())
    assert saved["pipeline_dsl_path"] == str(created / "local_runner.py")
    tfx("pipeline", "delete", "--engine=local", f"--pipeline-name={_NAME}")


def test_airflow_imports_modules_beside_the_file(tfx, created, homes):
    tfx("pipeline", "create", "--engine=airflow", "--pipeline-path", created / "airflow_runner.py")
    topology = (homes / _WHERE["airflow"]).read_text()
    assert str(created) in topology
    assert "train_steps" in topology
    tfx("pipeline", "delete", "--engine=airflow", f"--pipeline-name={_NAME}")


def test_vertex_is_left_to_tfx(tfx, homes, tmp_path):
    path = tmp_path / "runner.py"
    path.write_text(
        "from tfx import v1 as tfx\n"
        "experimental = tfx.orchestration.experimental\n"
        "config = experimental.KubeflowV2DagRunnerConfig(default_image='example/orders:1')\n"
        "nodes = [tfx.components.CsvExampleGen(input_base='gs://bucket/data')]\n"
        f"pipeline = tfx.dsl.Pipeline({_NAME!r}, 'gs://bucket/root', components=nodes)\n"
        "experimental.KubeflowV2DagRunner(config).run(pipeline)\n"
    )
    code, _, err = tfx("pipeline", "create", "--engine=vertex", "--pipeline-path", path)
    assert code == 0, err
    assert (homes / "tfx" / "vertex" / _NAME / "pipeline.json").exists()


@pytest.mark.parametrize(
    ("arguments", "received"),
    [
        (("template", "copy", "--model=nope", "--pipeline-name=x", "--destination-path={new}"),
         "model=nope"),
        (("template", "copy", "--model=perf", "--pipeline-name=a/b", "--destination-path={new}"),
         "pipeline_name=a/b"),
        (("template", "copy", "--model=perf", "--pipeline-name=x", "--destination-path={full}"),
         "destination_path="),
        (("pipeline", "create", "--engine=local", "--pipeline-path={new}"), "pipeline_path="),
        (("pipeline", "create", "--engine=airflow", "--pipeline-path={empty}"), "does 0 times"),
        (("pipeline", "create", "--engine=nope", "--pipeline-path={empty}"), "engine=nope"),
        (("pipeline", "delete", "--engine=local", "--pipeline-name=nope"), "does not exist"),
        (("pipeline", "delete", "--engine=airflow", "--pipeline-name=nope"), "pipeline_name=nope"),
        (("run", "create", "--engine=local", "--pipeline-name=nope"), "does not exist"),
        (("run", "create", "--engine=airflow", "--pipeline-name=nope"), "pipeline_name=nope"),
        (("run", "create", "--engine=vertex", "--pipeline-name=nope"), "--project"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_exit_code_2(tfx, tmp_path, arguments, received):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "empty.py").touch()
    places = {
        "new": tmp_path / "new",
        "full": tmp_path / "full",
        "empty": tmp_path / "full" / "empty.py",
    }
    code, _, err = tfx(*(argument.format(**places) for argument in arguments))
    (line,) = err.strip().splitlines()
    assert code == 2
    assert line.startswith("tfx: ")
    assert received in line
    assert [path.name for path in tmp_path.rglob("*")] == ["full", "empty.py"]


def test_a_run_needs_airflow(tfx, created, monkeypatch):
    given = ("--engine=airflow", "--pipeline-path", created / "airflow_runner.py")
    tfx("pipeline", "create", *given)
    monkeypatch.setenv("PATH", "")
    code, _, err = tfx("run", "create", "--engine=airflow", f"--pipeline-name={_NAME}")
    assert code == 2
    assert "Airflow's command on PATH" in err
    tfx("pipeline", "delete", "--engine=airflow", f"--pipeline-name={_NAME}")


def test_a_missing_airflow_home_is_reported(tfx, created, monkeypatch, tmp_path):
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    code, _, err = tfx("pipeline", "create", "--engine=airflow",
                       "--pipeline-path", created / "airflow_runner.py")  # fmt: skip
    assert code == 2
    assert "airflow db migrate" in err


@pytest.mark.parametrize("engine", ["local", "airflow"])
def test_runs_are_listed_by_the_engine_itself(tfx, engine):
    code, out, _ = tfx("run", "list", "--engine", engine, "--pipeline-name=x")
    assert code == 0
    assert f"Not supported for {engine} orchestrator." in out


def test_packages_are_found_without_pip(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert {"tfx", "tfx-perf"} <= set(repair.package_names())


def test_airflow_on_the_path_counts(monkeypatch, tmp_path):
    (tmp_path / "airflow").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "apache-airflow" in repair.package_names()


@pytest.fixture
def environment(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The script of a separate environment, as TFX installs it."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    path = tmp_path / "tfx"
    path.write_text(f"#!{sys.executable}\nfrom tfx.tools.cli.cli_main import cli_group\n")
    path.chmod(0o755)
    return path


def test_the_script_is_replaced_and_restored(environment):
    assert not tfx_command.is_repaired()
    tfx_command.write_script(repaired=True)
    assert tfx_command.is_repaired()
    assert environment.read_text().startswith(f"#!{sys.executable}\n")
    assert environment.stat().st_mode & 0o777 == 0o755
    tfx_command.write_script(repaired=True)
    tfx_command.write_script(repaired=False)
    assert not tfx_command.is_repaired()
    assert "sys.exit(cli_group())" in environment.read_text()
    assert [path.name for path in environment.parent.iterdir()] == ["tfx"]


def test_our_command_replaces_and_restores_it_and_touches_nothing_else(environment, call_command):
    assert call_command("tfx", "--install").stdout.rstrip().endswith("/tfx: repaired")
    assert tfx_command.is_repaired()
    assert call_command("tfx", "--install", "--restore").returncode == 2
    assert call_command("tfx", "--restore", "template", "list").returncode == 2
    assert tfx_command.is_repaired()
    assert call_command("tfx", "--restore").returncode == 0
    assert not tfx_command.is_repaired()
