"""LocalDagRunner and BeamDagRunner: parameters, conditions, and going on after a failure.

`progress` says what finished nodes found.
"""

import functools
import io
import pathlib
import re
import shlex

import pytest
import runner_components
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd
from tfx import v1 as tfx
from tfx.dsl.components.base import base_node
from tfx.orchestration.beam import beam_dag_runner

from tfx_perf.components import artifacts, latest_metrics
from tfx_perf.core import console
from tfx_perf.pipelines import local_runner, progress

_RUNNERS = {
    "local": local_runner.run,
    "beam": functools.partial(local_runner.run, runner_class=beam_dag_runner.BeamDagRunner),
}


def _pipeline(folder: pathlib.Path) -> tfx.dsl.Pipeline:
    number = tfx.dsl.experimental.RuntimeParameter(name="number", ptype=int, default=1)
    choose = runner_components.Choose(number=number)
    work = runner_components.Work(obstacle=str(folder / "obstacle")).with_id("Work")
    work.add_upstream_node(choose)
    with tfx.dsl.Cond(choose.outputs["chosen"].future()[0].value > 5):
        large = runner_components.Work(obstacle=str(folder / "none")).with_id("OnlyIfLarge")
    return tfx.dsl.Pipeline(
        pipeline_name="light", pipeline_root=str(folder / "artifacts"),
        components=[choose, work, large], enable_cache=True,
        metadata_connection_config=_sqlite(folder / "metadata" / "metadata.sqlite"),
    )  # fmt: skip


def _states(folder: pathlib.Path, kind: str, node: str) -> list[str]:
    store = metadata_store.MetadataStore(_sqlite(folder / "metadata" / "metadata.sqlite"))
    context = store.get_context_by_type_and_name("node", f"light.{node}")
    if context is None:
        return []
    executions = store.get_executions_by_context(context.id)
    return [
        mlmd.Execution.State.Name(item.last_known_state)
        for item in sorted(executions, key=lambda item: item.id)
        if store.get_execution_types_by_id([item.type_id])[0].name.endswith(kind)
    ]


def _ends(terminal: io.StringIO) -> dict[str, str]:
    """Returns how the nodes ended, by what the terminal shows."""
    lines = re.findall(r"^  (\S+) +[\d.]+ s  (.+)$", terminal.getvalue(), re.MULTILINE)
    return dict(lines)


@pytest.mark.parametrize("runner", _RUNNERS)
def test_a_condition_follows_the_parameter(tmp_path, runner):
    _RUNNERS[runner](_pipeline(tmp_path))
    assert _states(tmp_path, "Work", "OnlyIfLarge") == []
    assert _states(tmp_path, "Work", "Work") == ["COMPLETE"]
    _RUNNERS[runner](_pipeline(tmp_path), {"number": "7"})
    assert _states(tmp_path, "Work", "OnlyIfLarge") == ["COMPLETE"]


@pytest.mark.parametrize("runner", _RUNNERS)
def test_a_run_resumes_where_an_earlier_one_failed(tmp_path, runner):
    (tmp_path / "obstacle").touch()
    terminal = io.StringIO()
    with pytest.raises(Exception, match="obstacle"), progress.shown(terminal):
        _RUNNERS[runner](_pipeline(tmp_path))
    ends = _ends(terminal)
    ends.pop("OnlyIfLarge", None)  # may come after the failure, or not
    assert ends == {"Choose": "done", "Work": "failed"}
    assert _states(tmp_path, "Work", "Work") == ["FAILED"]
    (tmp_path / "obstacle").unlink()
    terminal = io.StringIO()
    with progress.shown(terminal):
        _RUNNERS[runner](_pipeline(tmp_path))
    assert _ends(terminal) == {"Choose": "from cache", "Work": "done", "OnlyIfLarge": "skipped"}
    assert _states(tmp_path, "Choose", "Choose") == ["COMPLETE", "CACHED"]
    assert _states(tmp_path, "Work", "Work") == ["FAILED", "COMPLETE"]


def _sqlite(path: pathlib.Path) -> mlmd.ConnectionConfig:
    return tfx.orchestration.metadata.sqlite_metadata_connection_config(str(path))


def _shown(folder: pathlib.Path, *components: base_node.BaseNode) -> list[str]:
    """Runs the components and returns the lines that the terminal shows."""
    pipeline = tfx.dsl.Pipeline(
        pipeline_name="one", pipeline_root=str(folder / "artifacts"), components=list(components),
        metadata_connection_config=_sqlite(folder / "metadata.sqlite"), enable_cache=True,
    )  # fmt: skip
    terminal = io.StringIO()
    with progress.shown(terminal):
        local_runner.run(pipeline)
    return terminal.getvalue().splitlines()


def test_a_slow_node_reports_its_progress(tmp_path, monkeypatch):
    monkeypatch.setattr(console, "STATUS_SECONDS", 0.3)
    *pulses, last = _shown(tmp_path, runner_components.TakeLong())
    parts = [re.fullmatch(r"  TakeLong +([\d.]+) s  \.\.\. (.+)", line) for line in pulses]
    seconds = [float(part[1]) for part in parts]
    assert seconds == sorted(seconds)
    assert [part[2] for part in parts if part[2] != "at work"][-1] == "counting sheep"
    assert parts[0][2] == "at work"
    assert last.endswith(" s  done")


def test_that_all_is_from_cache_is_said_though_resolvers_look_again(tmp_path):
    for is_again in (False, True):
        said = _shown(tmp_path, latest_metrics(), runner_components.Choose(number=1))
        assert any(line.startswith("Nothing has changed") for line in said) is is_again
    said = _shown(tmp_path, latest_metrics(), runner_components.Choose(number=2))
    assert not any(line.startswith("Nothing has changed") for line in said)


def test_a_remark_does_not_repeat_the_headline():
    made = mlmd.Artifact()
    for name, text in ((artifacts.HEADLINE, "No luck."), (artifacts.REMARK, "No luck. Log: x.log")):
        made.custom_properties[name].string_value = text
    lines = [*progress._closing("InputTuner", [made], database="")]
    assert lines == ["InputTuner: No luck.", "  remark: Log: x.log"]


@pytest.mark.parametrize("state", ["done", "from cache"])
def test_a_problem_is_reported_though_the_node_succeeded(tmp_path, state):
    if state == "from cache":
        _shown(tmp_path, runner_components.Stumble())
    node, *again, closing, report = _shown(tmp_path, runner_components.Stumble())
    assert [line.partition(":")[0] for line in again] == (
        ["Nothing has changed"] if state == "from cache" else []
    )
    assert node.startswith("  Stumble ")
    assert node.endswith(f" s  {state}")
    (page,) = tmp_path.rglob("report.html")
    title = "Stumble" if state == "done" else f"Stumble ({state})"
    assert closing == f"{title}: Nothing was measured: run_fn raised."
    assert report == f"  report: {page}"


def test_a_gates_decision_is_shown_where_people_look(tmp_path):
    node, decision, closing, report = _shown(tmp_path, runner_components.Judge())
    assert node.startswith("  Judge ")
    assert decision == "    REFUSED by 2 of 17 checks"
    assert closing == "Judge: REFUSED by 2 of 17 checks."
    (page,) = tmp_path.rglob("report.html")
    assert report == f"  report: {page}"


def test_a_refusal_shows_a_command_that_can_be_pasted(tmp_path):
    folder = tmp_path / "my project"
    folder.mkdir()
    said = _shown(folder, runner_components.Evaluate())
    (line,) = [line for line in said if line.startswith("  To accept this run anyway: ")]
    *command, database = shlex.split(line.partition(": ")[2])
    assert command == ["tfx-perf", "bless", "new", "--reason", "TEXT", "--source"]
    assert pathlib.Path(database).samefile(folder / "metadata.sqlite")
