"""`tfx --engine kubeflow` against a loopback server that has the real one's rules.

The commands are those of `tfx_repair.kubeflow`.
"""

import pathlib
import sys

import pytest
import yaml

pytest.importorskip("kfp", reason="kfp is not installed (extra kfp)")

import tfx_call  # noqa: E402
from api_server import ApiServer  # noqa: E402

from tfx_perf.kubeflow import server  # noqa: E402
from tfx_perf.templates import copying  # noqa: E402

_ENGINE = ("--engine", "kubeflow")


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    """The file of a project from the template."""
    project = tmp_path_factory.mktemp("projects") / "orders"
    copying.copy_project(copying.PERF, pipeline_name="My_Orders", destination=project)
    yield project / "kubeflow_runner.py"
    for name in [name for name in sys.modules if name.split(".")[0] in ("models", "pipeline")]:
        del sys.modules[name]


@pytest.fixture
def api(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (server.ENDPOINT_VARIABLE, "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(server, "_PAUSE_SECONDS", 0.01)
    return ApiServer()


@pytest.fixture
def tfx(api):
    """Runs `tfx` with arguments, and the endpoint; returns exit code, output and errors."""
    with api.running() as address:

        def run(*arguments, endpoint=address):
            at = ("--endpoint", endpoint) if endpoint else ()
            return tfx_call.call(*arguments, *_ENGINE, *at)

        yield run


def test_compile_writes_a_file_that_the_server_accepts(tfx, runner):
    code, out, err = tfx("pipeline", "compile", "--pipeline-path", runner, endpoint=None)
    assert code == 0, err
    path = pathlib.Path(out.splitlines()[-1].removeprefix("Pipeline package path: "))
    spec = next(yaml.safe_load_all(path.read_text()))
    assert (spec["schemaVersion"], spec["pipelineInfo"]["name"]) == ("2.1.0", "my-orders")


def test_pipelines_are_created_and_updated(tfx, runner, api):
    code, _, err = tfx("pipeline", "update", "--pipeline-path", runner)
    assert (code, "pipeline_name=my-orders" in err) == (2, True)

    code, out, err = tfx("pipeline", "create", "--pipeline-path", runner)
    assert code == 0, err
    assert 'Pipeline "my-orders" created successfully.' in out
    assert "#/pipelines/details/pipeline-1" in out

    code, _, err = tfx("pipeline", "create", "--pipeline-path", runner)
    assert (code, "tfx pipeline update" in err) == (2, True)
    assert len(api.versions) == 1

    code, out, err = tfx("pipeline", "update", "--pipeline-path", runner)
    assert code == 0, err
    assert 'Pipeline "my-orders" updated successfully.' in out
    assert len(api.versions) == 2


def test_a_run_is_started(tfx, runner, api):
    tfx("pipeline", "create", "--pipeline-path", runner)
    code, out, err = tfx(
        "run", "create", "--pipeline-name", "my-orders", "--runtime-parameter", "train_steps=7"
    )
    assert code == 0, err
    assert "Run created for pipeline: my-orders" in out
    assert "#/runs/details/run-1" in out
    assert api.runs["run-1"]["runtime_config"]["parameters"] == {"train_steps": 7}


@pytest.mark.parametrize(
    "command",
    [
        ("pipeline", "list"),
        ("pipeline", "delete", "--pipeline-name=my-orders"),
        ("run", "list", "--pipeline-name=my-orders"),
        ("run", "status", "--pipeline-name=my-orders", "--run-id=run-1"),
        ("run", "terminate", "--run-id=run-1"),
    ],
)
def test_unsupported_commands_of_kubeflow_are_refused(tfx, command):
    code, out, _ = tfx(*command)
    assert (code, out.splitlines()[-1]) == (0, "Not supported for kubeflow orchestrator.")


@pytest.mark.parametrize(
    ("given", "received"), [("train_steps=many", "train_steps="), ("steps=7", "steps=7")]
)
def test_wrong_parameters_start_nothing(tfx, runner, api, given, received):
    tfx("pipeline", "create", "--pipeline-path", runner)
    code, _, err = tfx("run", "create", "--pipeline-name=my-orders", "--runtime-parameter", given)
    assert (code, received in err, api.runs) == (2, True, {})


def test_no_server_is_one_line(tfx, runner):
    named = ("--pipeline-name", "my-orders")
    code, _, err = tfx("run", "create", *named, endpoint="http://127.0.0.1:9")
    assert code == 2
    assert "127.0.0.1:9" in err
    code, _, err = tfx("pipeline", "create", "--pipeline-path", runner, endpoint=None)
    assert code == 2
    assert "KF_PIPELINES_ENDPOINT" in err
    assert len(err.strip().splitlines()) == 1


def test_refused_credentials_are_one_line(tfx, api):
    api.token = "secret"
    code, _, err = tfx("run", "create", "--pipeline-name", "my-orders")
    assert (code, "401" in err, len(err.strip().splitlines())) == (2, True, 1)
