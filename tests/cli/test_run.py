"""`tfx-perf run`, and the terminal output of runs without it."""

import json
import os
import pathlib
import re
import sys

import pytest

from tests import processes

_COMPONENTS = pathlib.Path(__file__).parents[1] / "pipelines"
_SCRIPT = """
import subprocess
import sys
import runner_components
from tfx import v1 as tfx
from tfx.components.util import udf_utils
nodes = {
    "good": [runner_components.Choose(number=3), runner_components.Stumble()],
    "bad": [runner_components.Work(obstacle=__file__)],
    "loud": [runner_components.Shout()],
    "quits": [runner_components.Choose(number=3)],
    "calls": [runner_components.Choose(number=3)],
    "packs": [runner_components.Choose(number=3)],
    "waits": [runner_components.Wait(began="began")],
    "nothing": [],
}[sys.argv[1]]
if not nodes:
    sys.exit()
if sys.argv[1] == "calls":
    subprocess.run(["echo", "a line of its process"])
if sys.argv[1] == "packs":  # as the runner does for a component that has a module_file
    udf_utils.package_user_module_file("Trainer", __file__, "artifacts")
print("a line of the script")
sqlite = tfx.orchestration.metadata.sqlite_metadata_connection_config
tfx.orchestration.LocalDagRunner().run(tfx.dsl.Pipeline(
    pipeline_name="one", pipeline_root="artifacts", components=nodes,
    metadata_connection_config=sqlite("metadata.sqlite"), enable_cache=True,
))
if sys.argv[1] == "quits":
    sys.exit(eval(sys.argv[2]))
"""


@pytest.fixture
def call(tmp_path):
    """Runs a program in a folder with the script `here.py`."""
    (tmp_path / "here.py").write_text(_SCRIPT)
    paths = [str(_COMPONENTS), *filter(None, [os.environ.get("PYTHONPATH")])]

    def run(*command):
        return processes.run(
            *command, cwd=tmp_path, environment={"PYTHONPATH": os.pathsep.join(paths)}
        )

    return run


def test_wrong_settings_are_reported_before_tfx_is_imported(tfx_perf, tmp_path):
    settings = tmp_path / "perf.yaml"
    settings.write_text("tensorflow_optimization:\n  training: {sed: 1}\n")
    done = tfx_perf("here.py", "good")
    assert done.returncode == 2
    assert "perf.yaml, line 2. Received: training.sed=1. Did you mean seed?" in done.stderr
    assert "Loading TFX" not in done.stderr
    settings.write_text("somebody: else\n")
    assert tfx_perf("absent.py").returncode == 2  # the next check


@pytest.fixture
def tfx_perf(call):
    """Runs `tfx-perf run` in the folder."""
    script = str(pathlib.Path(sys.executable).with_name("tfx-perf"))
    return lambda *arguments: call(script, "run", *arguments)


@pytest.mark.slow
def test_only_nodes_and_their_results_are_shown(tfx_perf, tmp_path):
    for state in ("done", "from cache"):
        done = tfx_perf("here.py", "good")
        assert (done.returncode, done.stdout) == (0, "a line of the script\n"), done.stderr
        loading, chosen, stumbled, *again, found, report, log = done.stderr.splitlines()
        assert bool(again) == (state == "from cache")
        assert loading == "Loading TFX"
        assert re.fullmatch(rf"  Choose +[\d.]+ s  {state}", chosen)
        assert re.fullmatch(rf"  Stumble +[\d.]+ s  {state}", stumbled)
        assert found == "Stumble: Nothing was measured: run_fn raised."
        assert (tmp_path / report.removeprefix("  report: ")).is_file()
        assert log == f"Log: {tmp_path / 'here.log'}"
        assert "Component Choose is finished" in (tmp_path / "here.log").read_text()


@pytest.mark.slow
def test_a_pipeline_that_fails_is_one_line_and_exit_code_1(tfx_perf, tmp_path):
    done = tfx_perf("--log", "elsewhere.log", "here.py", "bad")
    assert done.returncode == 1
    _, node, failure, log = done.stderr.splitlines()
    assert re.fullmatch(r"  Work +[\d.]+ s  failed", node)
    assert failure.startswith("tfx-perf: here.py failed: ")
    assert "there is an obstacle" in failure
    assert log == f"Log: {tmp_path / 'elsewhere.log'}"
    assert "Traceback" in (tmp_path / "elsewhere.log").read_text()


@pytest.mark.slow
def test_a_script_that_runs_no_pipeline_has_failed(tfx_perf):
    done = tfx_perf("here.py", "nothing")
    assert done.returncode == 2
    _, failure, log = done.stderr.splitlines()
    assert failure == "tfx-perf: here.py failed: it has run no pipeline in this process."
    assert log.startswith("Log: ")


def test_json_has_the_nodes(tfx_perf):
    done = tfx_perf("--json", "here.py", "good")
    answer = json.loads(done.stdout)
    assert "a line of the script" in done.stderr
    assert [(node["name"], node["state"]) for node in answer["nodes"]] == [
        ("Choose", "done"), ("Stumble", "done"),
    ]  # fmt: skip
    assert answer["failure"] is None
    assert answer["nodes"][1]["found"][0] == "Stumble: Nothing was measured: run_fn raised."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "exit_code", "failure"), [("0", 0, None), ("3", 3, None), ("'no data'", 1, "no data")]
)
def test_a_script_that_exits_by_itself_ends_like_others(tfx_perf, code, exit_code, failure):
    done = tfx_perf("--json", "here.py", "quits", code)
    assert done.returncode == exit_code
    answer = json.loads(done.stdout)
    assert answer["failure"] == failure
    assert [node["name"] for node in answer["nodes"]] == ["Choose"]
    assert done.stderr.splitlines()[-1].startswith("Log: ")


_REFUSALS = """
import argparse
import sys
from tfx_perf.core import console, errors
print("a library's line", file=sys.stderr)
case, = sys.argv[1:]
if case == "an argument":
    argparse.ArgumentParser().parse_args(["--sed"])
if case == "of a subcommand":
    parser = argparse.ArgumentParser()
    parser.add_subparsers().add_parser("train").add_argument("count", type=int)
    parser.parse_args(["train", "many"])
if case == "a setting":
    with console.script("own.log"):
        raise errors.UserError("Expected a TPU. Received: strategy=tpu.")
sys.exit(int(case))
"""
_RUN = """
import pathlib
import sys
from tfx_perf.core import console
from tfx_perf.cli import run
log = pathlib.Path("here.log")
for case in sys.argv[1:]:
    sys.argv = ["here.py", case]
    with console.libraries(log):
        code, failure = run._run("here.py", log)
    print(code, failure)
"""


def test_output_of_a_script_before_it_exits_is_the_failure(call, tmp_path):
    (tmp_path / "here.py").write_text(_REFUSALS)
    cases = "an argument", "of a subcommand", "a setting", "3", "0"
    done = call(sys.executable, "-c", _RUN, *cases)
    assert done.stdout.splitlines() == [
        "2 unrecognized arguments: --sed",
        "2 train: error: argument count: invalid int value: 'many'",
        "2 Expected a TPU. Received: strategy=tpu.",
        "3 ",
        "0 ",
    ], done.stderr


@pytest.mark.slow
def test_output_of_a_scripts_processes_is_shown_but_not_in_the_json(tfx_perf):
    assert "a line of its process\n" in tfx_perf("here.py", "calls").stdout
    assert json.loads(tfx_perf("--json", "here.py", "calls").stdout)["failure"] is None


@pytest.mark.slow
def test_setuptools_output_about_a_module_file_goes_into_the_log(tfx_perf, tmp_path):
    assert tfx_perf("here.py", "packs").stdout == "a line of the script\n"
    assert "running bdist_wheel" in (tmp_path / "here.log").read_text()


@pytest.mark.slow
def test_output_of_a_nodes_processes_goes_into_the_log(tfx_perf, tmp_path):
    done = tfx_perf("here.py", "loud")
    assert done.stdout == "a line of the script\n"
    log = (tmp_path / "here.log").read_text()
    assert "from the node" in log
    assert "from its child" in log


def test_a_log_that_cannot_be_written_or_is_the_script_is_one_line(tfx_perf, tmp_path):
    before = (tmp_path / "here.py").read_text()
    for log in (".", "here.py/below.log", "here.py"):
        done = tfx_perf("--log", log, "here.py", "good")
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1].startswith("tfx-perf: Expected ")
        assert "log=" in done.stderr
    assert (tmp_path / "here.py").read_text() == before


@pytest.mark.parametrize(
    ("arguments", "received", "end"),
    [
        (["nowhere.py"], "nowhere.py, which is not a file.", ""),
        ([sys.executable, "here.py", "good"], "/", "Leave the interpreter out"),
    ],
)
def test_a_file_that_is_no_script_is_one_line(tfx_perf, arguments, received, end):
    done = tfx_perf(*arguments)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"tfx-perf: Expected a Python script. Received: script={received}")
    assert end in line


@pytest.mark.slow
def test_a_run_without_it_ends_with_the_results(call):
    done = call(sys.executable, "here.py", "good")
    assert done.returncode == 0
    found, report = done.stderr.splitlines()[-2:]
    assert found == "a test: Nothing was measured: run_fn raised."
    assert report.startswith("  report: ")
