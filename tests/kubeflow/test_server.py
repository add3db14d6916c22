"""A job on a server: what is uploaded, typed parameters, and what the server answers.

What a server says when it refuses something comes out in one line. The commands are `cli.kubeflow`.
"""

import contextlib
import copy
import json
import pathlib

import pytest
import yaml
from api_server import ApiServer
from test_lint import GOOD, changed

pytest.importorskip("kfp", reason="kfp is not installed (extra kfp)")

from tests import processes  # noqa: E402
from tfx_perf.core import errors  # noqa: E402
from tfx_perf.kubeflow import Job, PipelineServer  # noqa: E402
from tfx_perf.kubeflow import server as server_lib  # noqa: E402


@pytest.fixture(autouse=True)
def no_home(tmp_path, monkeypatch):
    """Neither a kube config nor an endpoint of this machine is found."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (server_lib.ENDPOINT_VARIABLE, "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(server_lib, "_PAUSE_SECONDS", 0.01)


@pytest.fixture
def api():
    return ApiServer()


@pytest.fixture
def address(api):
    with api.running() as address:
        yield address


@pytest.fixture
def server(address):
    return PipelineServer(address)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "good.yaml"
    path.write_text(yaml.safe_dump(GOOD))
    return path


def test_the_first_upload_creates_a_pipeline_the_next_a_version(api, server, path, address):
    first = server.upload(path)
    assert (first.name, first.link) == ("good", f"{address}/#/pipelines/details/pipeline-1")
    second = server.upload(path, version="better")
    assert second.link == f"{address}/#/pipelines/details/pipeline-1/version/version-2"
    server.upload(path)
    names = [version["display_name"] for version in api.versions.values()]
    assert names[:2] == ["good", "better"]
    assert names[2].startswith("good-20")


def test_a_run_gets_typed_parameters_and_its_root(api, server, path, address):
    server.upload(path)
    run = server.start(
        Job("good", name="monday", parameters={"count": "7"}, pipeline_root="s3://bucket/root")
    )
    assert (run.name, run.link) == ("monday", f"{address}/#/runs/details/run-1")
    created = api.runs["run-1"]
    assert created["runtime_config"] == {
        "parameters": {"count": 7}, "pipeline_root": "s3://bucket/root",
    }  # fmt: skip
    assert created["display_name"] == "monday"
    assert api.experiments[created["experiment_id"]]["display_name"] == "Default"


@pytest.mark.parametrize("optional", [False, True])
def test_a_parameter_without_a_default_may_be_missing_only_if_optional(server, path, optional):
    spec = copy.deepcopy(GOOD)
    count = spec["root"]["inputDefinitions"]["parameters"]["count"]
    del count["defaultValue"]
    count["isOptional"] = optional
    path.write_text(yaml.safe_dump(spec))
    server.upload(path)
    expected = contextlib.nullcontext() if optional else pytest.raises(errors.UserError)
    with expected:
        server.start(Job("good"))


def test_a_run_uses_the_newest_version_or_the_one_that_is_named(api, server, path):
    server.upload(path)
    server.upload(path, version="better")
    server.start(Job("good"))
    server.start(Job("good", version="good"))
    used = [run["pipeline_version_reference"]["pipeline_version_id"] for run in api.runs.values()]
    assert used == ["version-2", "version-1"]
    assert len(api.experiments) == 1


def test_a_schedule_has_a_trigger(api, server, path):
    server.upload(path)
    server.schedule(Job("good"), cron="0 0 3 * * *")
    server.schedule(Job("good"), interval_seconds=60)
    by_clock, by_interval = api.recurring.values()
    assert by_clock["trigger"]["cron_schedule"]["cron"] == "0 0 3 * * *"
    assert by_interval["trigger"]["periodic_schedule"]["interval_second"] == 60
    assert by_clock["no_catchup"]


def test_waiting_ends_with_the_time_or_the_run(api, server, path):
    server.upload(path)
    run = server.start(Job("good"))
    api.outcome = [{"state": "RUNNING"}]
    assert not server.wait(run.id, timeout_seconds=0.05, poll_seconds=0.02).finished
    names = {"make": "SUCCEEDED", "use": "FAILED"}
    tasks = [{"display_name": name, "state": state} for name, state in names.items()]
    failed = {"state": "FAILED", "error": {"message": "a task\nfailed"}}
    api.outcome = [{"state": "RUNNING"}] * 3 + [{**failed, "run_details": {"task_details": tasks}}]
    state = server.wait(run.id, timeout_seconds=60, poll_seconds=0.01)
    assert (state.state, state.message, state.failed_tasks) == ("FAILED", "a task failed", ("use",))


def test_passing_failures_are_tried_again(api, server, path):
    api.failures = [503, 502, 500]
    server.upload(path)
    assert len(api.pipelines) == 1


def test_a_run_that_may_exist_is_not_created_again(api, server, path):
    server.upload(path)
    api.requests.clear()
    api.failures = [504]  # the server may have done it, and only the answer was lost
    with pytest.raises(errors.UserError, match="504"):
        server._call(server._client.upload_pipeline, str(path), pipeline_name="new")
    assert api.requests == ["POST /pipelines/upload"]


@pytest.mark.parametrize(
    ("call", "received"),
    [
        (lambda server, path: server.upload(path.with_name("none.yaml")), "none.yaml"),
        (lambda server, path: server.upload(path.with_suffix(".json")), "ends in .yaml"),
        (lambda server, path: server.start(Job("ghost")), "pipeline=ghost"),
        (lambda server, path: server.start(Job("good", version="x")), "newest first: good"),
        (lambda server, path: server.start(Job("good", parameters={"size": 1})), "size=1"),
        (lambda server, path: server.start(Job("good", parameters={"count": "x"})), "count='x'"),
        (lambda server, path: server.start(Job("good", parameters={"count": True})), "count=True"),
        (lambda server, path: server.schedule(Job("good")), "cron=None"),
        (lambda server, path: server.schedule(Job("good"), cron="* * * * *"), "six fields"),
        (lambda server, path: server.state("ghost"), "/runs/ghost not found"),
        (lambda server, path: server.upload(path, version="good"), "already exists"),
    ],
)
def test_an_error_is_one_line_and_creates_nothing(api, server, path, call, received):
    server.upload(path)
    with pytest.raises(errors.UserError) as raised:
        call(server, path)
    assert received in str(raised.value)
    assert "\n" not in str(raised.value)
    assert (len(api.versions), api.runs, api.recurring, api.experiments) == (1, {}, {}, {})


def test_a_bad_spec_is_not_even_sent_and_the_stand_in_refuses_it_as_the_server_does(
    api, server, path
):
    path.write_text(yaml.safe_dump(changed(GOOD, "schemaVersion", "2.0.0")))
    api.requests.clear()
    with pytest.raises(errors.UserError, match="schemaVersion 2.0.0"):
        server.upload(path)
    assert api.requests == []
    with pytest.raises(errors.UserError, match=r"accept this. Received: 400 .*schemaVersion 2.0.0"):
        server._call(server._client.upload_pipeline, str(path), pipeline_name="x")


def test_a_token_is_needed_where_the_server_wants_one(api, address):
    api.token = "secret"
    with pytest.raises(errors.UserError, match="Expected credentials .* answers 401"):
        PipelineServer(address)
    PipelineServer(address, existing_token="secret")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"host": "http://127.0.0.1:9", "attempts": 2}, "host=http://127.0.0.1:9 "),
        ({}, "no KF_PIPELINES_ENDPOINT"),
    ],
)
def test_nothing_that_answers_is_one_line(given, words):
    with pytest.raises(errors.UserError, match=words) as raised:
        PipelineServer(**given)
    assert "\n" not in str(raised.value)


def _command(*arguments, **environment):
    return processes.python("-m", "tfx_perf", "kubeflow", *arguments, environment=environment)


def test_the_command_line_uploads_runs_and_waits(api, address, path):
    environment = {server_lib.ENDPOINT_VARIABLE: address}
    uploaded = _command("upload", path, "--json", **environment)
    assert json.loads(uploaded.stdout)["name"] == "good", uploaded.stderr
    api.outcome = [{"state": "FAILED"}]
    run = _command("run", "good", "--param", "count=4", "--wait", "5", **environment)
    assert run.returncode == 1
    assert run.stdout.startswith("failed: ")
    assert api.runs["run-1"]["runtime_config"]["parameters"] == {"count": 4}


def test_the_command_line_lints_and_names_errors(path):
    done = _command("upload", path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("tfx-perf: Expected the address")
    assert _command("lint", path).stdout.strip() == "No problems."
    path.write_text(yaml.safe_dump(changed(GOOD, "schemaVersion", "2.0.0")))
    done = _command("lint", path, "--json")
    assert done.returncode == 1
    assert "2.1.0 only" in json.loads(done.stdout)["problems"][0]
    assert pathlib.Path(json.loads(done.stdout)["path"]) == path


_PIPELINES = """
from tfx import v1 as tfx

def create():
    gen = tfx.components.CsvExampleGen(input_base="data")
    return tfx.dsl.Pipeline("mine", "minio://bucket/root", components=[gen])

def broken():
    raise KeyError("mine")
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "my_pipeline.py").write_text(_PIPELINES)
    (tmp_path / "settings.yaml").write_text("image: mine:1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _compile(function, *options):
    return _command("compile", f"my_pipeline:{function}", "--settings", "settings.yaml", *options)


@pytest.mark.slow
def test_compiling_shows_own_lines_only(project):
    done = _compile("create")
    assert done.returncode == 0
    assert done.stdout == "Compiled for kubeflow: pipeline.yaml\n"
    (note,) = done.stderr.splitlines()
    assert note.startswith("Note: CsvExampleGen looks for input_base=data in its pod")
    assert (project / "pipeline.yaml").is_file()
    done = _compile("create", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["notes"] == [note.removeprefix("Note: ")]


@pytest.mark.slow
@pytest.mark.usefixtures("project")
def test_a_file_without_a_pipeline_is_one_line_and_a_bug_in_it_is_shown_in_full():
    done = _compile("other")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "Received: my_pipeline:other" in line
    done = _compile("broken")
    assert done.returncode == 1
    place, first, *_ = done.stderr.splitlines()
    log = pathlib.Path(place.removeprefix("Log: "))
    assert "Google" in log.read_text() or "TensorFlow" in log.read_text()
    log.unlink()
    assert first == "Traceback (most recent call last):"
    assert "in broken" in done.stderr
    assert done.stderr.endswith("KeyError: 'mine'\n")
