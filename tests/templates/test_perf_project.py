"""A project from the template `perf`: its own tests pass, and its pipeline runs."""

import json
import pathlib
import re

import pytest

from tests import processes
from tfx_perf.mlmd import runs as recorded_runs
from tfx_perf.templates import copying

pytestmark = pytest.mark.timeout(3600)  # whole pipelines, beside whatever else

_SHOWN_LINE = re.compile(
    r"  \S+ +[\d.]+ s  (done|from cache|skipped|\.\.\. .+)|    .+"  # and a gate's decision
    r"|(InputTuner|MemoryProfiler|OptimizedTrainer|Evaluator|PerfEvaluator|Pusher): .+"  # found
    r"|  (report|remark|What to do|To accept this run anyway|step time|\w+ \([\w ]+\)):? .+"
)


def _call(project: pathlib.Path, *arguments: str, **environment: str) -> str:
    """Runs Python in the project and returns its output."""
    done = processes.python(*arguments, cwd=project, environment=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    lines = done.stderr.splitlines()
    assert [line for line in lines if not _SHOWN_LINE.fullmatch(line)] == []
    assert len(lines) <= 40  # noqa: PLR2004
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A fresh copy."""
    destination = tmp_path_factory.mktemp("perf") / "orders"
    copying.copy_project(copying.PERF, pipeline_name="my_orders", destination=destination)
    return destination


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "shown"),
    [("steps", "Received: --set steps."), ("steps=3", "Received: parameter=steps.")],
)
def test_only_own_lines_are_shown(project, value, shown):
    done = processes.python("local_runner.py", "--set", value, cwd=project)
    assert (done.returncode, done.stdout) == (2, "")
    assert shown in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_its_own_tests_pass_and_compiling_says_what_a_run_will_do_without(project):
    assert re.search(r"\b\d+ passed", _call(project, "-m", "pytest", "-q"))
    done = processes.python("kubeflow_runner.py", cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    *notes, last = done.stdout.splitlines()
    assert notes and all(note.startswith("Note: ") for note in notes)
    assert last.startswith("Compiled for Kubeflow: ") and last.endswith(".yaml")


@pytest.mark.slow
def test_one_command_trains_and_pushes(project):
    shown = _call(project, "local_runner.py", "--set", "train_steps=300")
    assert (project / "output" / "run.log").read_text().count(" is finished.") > 10  # noqa: PLR2004
    run = recorded_runs.read_runs(project / "output" / "metadata.sqlite", limit=1)[0]
    assert (run.state, run.blessed, run.pushed) == ("complete", True, True)
    assert list((project / "output" / "serving_model").iterdir())
    for node in ("CsvExampleGen", "InputTuner", "MemoryProfiler", "OptimizedTrainer", "Pusher"):
        assert re.search(rf"^  {node} +[\d.]+ s  done$", shown, re.MULTILINE)
    for folder in run.folders.values():
        assert pathlib.Path(folder, "report.html").is_file()
    trained = json.loads(pathlib.Path(run.folders["PerfMetrics"], "metrics.json").read_text())
    assert trained["train_step_count"] == 300  # noqa: PLR2004


@pytest.mark.slow
def test_records_are_read_as_well(project, tmp_path):
    _call(project, "make_data.py", "--format", "tfrecord", "--output", str(tmp_path / "records"))
    _call(
        project, "local_runner.py", "--set", "train_steps=100",
        DATA_FORMAT="tfrecord", DATA_PATH=str(tmp_path / "records"), OUTPUT=str(tmp_path / "out"),
    )  # fmt: skip
    run = recorded_runs.read_runs(tmp_path / "out" / "metadata.sqlite", limit=1)[0]
    assert (run.state, run.pushed) == ("complete", True)
