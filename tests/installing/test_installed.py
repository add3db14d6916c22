"""A wheel in an environment of its own, used from a folder outside of the repository."""

import json
import pathlib
import re
import subprocess
import sys

import pytest
import wheels
import yaml

from tests import processes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

_LIST_COMMANDS = """
import click, json
from tfx_perf.cli import main
def walk(command, names):
    yield names
    if isinstance(command, click.Group):
        for name in command.list_commands(None):
            yield from walk(command.get_command(None, name), [*names, name])
print(json.dumps(list(walk(main.cli, []))))
"""

# Airflow needs the location of ML Metadata.
_SCHEDULED = """
from tfx.orchestration import metadata
from pipeline import configs, definition
def create():
    database = str(configs.OUTPUT / "metadata.sqlite")
    connection = metadata.sqlite_metadata_connection_config(database)
    return definition.create(metadata_connection_config=connection)
"""


class User:
    """Calls what is installed, in a folder of its own."""

    def __init__(self, *, programs: pathlib.Path, folder: pathlib.Path) -> None:
        self._programs = programs
        self.folder = folder
        self._environment = wheels.environment(programs)

    def call(self, program: str, *arguments: object, below: str = ".") -> str:
        """Returns what the program writes, which has to succeed."""
        done = processes.run(
            self._programs / program, *arguments, cwd=self.folder / below, env=self._environment
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout


@pytest.fixture(scope="module")
def user(uv, wheel, tmp_path_factory):
    """With the wheel and kfp."""
    folder = tmp_path_factory.mktemp("user")
    environment = folder / "environment"
    python = environment / "bin" / "python"
    requirement = f"tfx-perf[kfp] @ {wheel.as_uri()}"
    lock = str(wheels.ROOT / "requirements.lock")
    for command in (
        ["venv", "--quiet", "--seed", "--python", sys.executable, str(environment)],
        ["pip", "install", "--quiet", "--no-config", "--python", str(python), "-c", lock,
         requirement],
    ):  # fmt: skip
        subprocess.run([uv, *command], cwd=folder, check=True)
    return User(programs=python.parent, folder=folder)


@pytest.fixture(scope="module")
def project(user):
    """The name of a project from the template `perf`, run once."""
    user.call(
        "tfx-perf", "template", "copy", "--model", "perf", "--pipeline-name", "orders",
        "--destination-path", "orders",
    )  # fmt: skip
    user.call("python", "local_runner.py", "--set", "train_steps=300", below="orders")
    return "orders"


def test_it_is_the_wheel_that_is_used(user):
    where = user.call("python", "-c", "import tfx_perf.components as c; print(c.__file__)")
    assert where.startswith(str(user.folder))


def test_doctor_finds_everything(user):
    assert json.loads(user.call("tfx-perf", "doctor", "--json"))["works"] is True


def test_tfxs_command_has_the_template(user):
    user.call("tfx-perf", "tfx", "--install")
    found = re.findall(r"^- (\S+)", user.call("tfx", "template", "list"), re.M)
    assert {"taxi", "perf"} <= set(found)


def test_every_command_has_help(user):
    commands = json.loads(user.call("python", "-c", _LIST_COMMANDS))
    assert ["kubeflow", "compile"] in commands
    for names in commands:
        assert "Usage:" in user.call("tfx-perf", *names, "--help"), names


def test_a_project_runs_and_its_figures_are_read(user, project):
    database = "output/metadata.sqlite"
    (run,) = json.loads(user.call("tfx-perf", "history", database, "--json", below=project))
    assert run["state"] == "complete"
    assert {"PerfMetrics", "PerfEvaluation", "MemoryProfile", "InputPlan"} <= set(run["folders"])
    name = run["run_id"]
    for command in (
        ["compare", name, name, "--source", database],
        ["calibrate", database],
        ["bless", name, "--reason", "a trial", "--source", database],
        ["revoke", name, "--reason", "no more", "--source", database],
    ):
        assert user.call("tfx-perf", *command, below=project)


def test_it_is_compiled_for_kubeflow(user, project):
    user.call("python", "kubeflow_runner.py", below=project)
    user.call("tfx-perf", "kubeflow", "lint", "output/orders.yaml", below=project)
    (user.folder / project / "kubeflow.yaml").write_text("image: example/orders:1\n")
    user.call(
        "tfx-perf", "kubeflow", "compile", "pipeline.definition:create",
        "--settings", "kubeflow.yaml", below=project,
    )  # fmt: skip
    assert (user.folder / project / "pipeline.yaml").is_file()


def test_it_is_deployed_to_airflow(user, project):
    (user.folder / "dags").mkdir()
    (user.folder / project / "scheduled.py").write_text(_SCHEDULED)
    user.call(
        "tfx-perf", "airflow", "deploy", "scheduled:create",
        "--dags-folder", user.folder / "dags", below=project,
    )  # fmt: skip
    assert (user.folder / "dags" / "orders" / "topology.json").is_file()


def test_the_demo_runs(user):
    told = user.call(
        "tfx-perf", "demo", "--batch-size", "40", "--steps", "50", "--output", "demo", "--json"
    )
    (run,) = json.loads(told)["runs"]
    assert run["batch_size"] == 40  # noqa: PLR2004


def test_manifests_and_dockerfile_are_where_the_docs_say(user):
    page = (wheels.ROOT / "docs" / "kubernetes.md").read_text()
    (snippet,) = re.findall(r"python -c '(import tfx_perf\.kubeflow.*)'\)", page)
    folder = pathlib.Path(user.call("python", "-c", snippet).strip())
    assert (folder / "Dockerfile").is_file()
    for kustomization in folder.glob("manifests/**/kustomization.yaml"):
        for name in yaml.safe_load(kustomization.read_text())["resources"]:
            assert (kustomization.parent / name).exists()
    (snippet,) = re.findall(r"python -c '(import sys; .*)'\)/share", page)
    shared = pathlib.Path(user.call("python", "-c", snippet).strip(), "share", "tfx-perf")
    assert {path.name for path in shared.iterdir()} == {"constraints.txt", "requirements.lock"}
