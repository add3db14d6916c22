"""LocalDagRunner and BeamDagRunner: parameters, conditions, and going on after a failure."""

import io
import pathlib

import pytest
import runner_components
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd
from tfx import v1 as tfx

from tfx_perf.pipelines import beam_runner, local_runner, progress

_RUNNERS = {"local": local_runner.run, "beam": beam_runner.run}


def _pipeline(folder: pathlib.Path) -> tfx.dsl.Pipeline:
    number = tfx.dsl.experimental.RuntimeParameter(name="number", ptype=int, default=1)
    choose = runner_components.Choose(number=number)
    work = runner_components.Work(obstacle=str(folder / "obstacle")).with_id("Work")
    work.add_upstream_node(choose)
    with tfx.dsl.Cond(choose.outputs["chosen"].future()[0].value > 5):
        large = runner_components.Work(obstacle=str(folder / "none")).with_id("OnlyIfLarge")
    connection = tfx.orchestration.metadata.sqlite_metadata_connection_config(
        str(folder / "metadata" / "metadata.sqlite")
    )
    return tfx.dsl.Pipeline(
        pipeline_name="light",
        pipeline_root=str(folder / "artifacts"),
        components=[choose, work, large],
        metadata_connection_config=connection,
        enable_cache=True,
    )


def _states(folder: pathlib.Path, kind: str, node: str) -> list[str]:
    connection = mlmd.ConnectionConfig()
    connection.sqlite.filename_uri = str(folder / "metadata" / "metadata.sqlite")
    store = metadata_store.MetadataStore(connection)
    context = store.get_context_by_type_and_name("node", f"light.{node}")
    if context is None:
        return []
    executions = store.get_executions_by_context(context.id)
    return [
        mlmd.Execution.State.Name(item.last_known_state)
        for item in sorted(executions, key=lambda item: item.id)
        if store.get_execution_types_by_id([item.type_id])[0].name.endswith(kind)
    ]


@pytest.mark.parametrize("runner", _RUNNERS)
def test_a_condition_follows_the_parameter(tmp_path, runner):
    _RUNNERS[runner](_pipeline(tmp_path))
    assert _states(tmp_path, "Work", "OnlyIfLarge") == []
    assert _states(tmp_path, "Work", "Work") == ["COMPLETE"]
    _RUNNERS[runner](_pipeline(tmp_path), {"number": "7"})
    assert _states(tmp_path, "Work", "OnlyIfLarge") == ["COMPLETE"]


@pytest.mark.parametrize("runner", _RUNNERS)
def test_a_run_goes_on_where_one_before_failed(tmp_path, runner):
    (tmp_path / "obstacle").touch()
    terminal = io.StringIO()
    with pytest.raises(Exception, match="obstacle"), progress.shown(terminal):
        _RUNNERS[runner](_pipeline(tmp_path))
    shown = terminal.getvalue()
    assert "Choose" in shown
    assert "Work" in shown
    assert "failed" in shown
    assert _states(tmp_path, "Work", "Work") == ["FAILED"]
    (tmp_path / "obstacle").unlink()
    _RUNNERS[runner](_pipeline(tmp_path))
    assert _states(tmp_path, "Choose", "Choose") == ["COMPLETE", "CACHED"]
    assert _states(tmp_path, "Work", "Work") == ["FAILED", "COMPLETE"]



def test_a_gates_decision_is_shown_where_people_look(tmp_path):
    database = str(tmp_path / "metadata.sqlite")
    pipeline = tfx.dsl.Pipeline(
        pipeline_name="judged",
        pipeline_root=str(tmp_path / "artifacts"),
        components=[runner_components.Judge()],
        metadata_connection_config=tfx.orchestration.metadata.sqlite_metadata_connection_config(
            database
        ),
    )
    terminal = io.StringIO()
    with progress.shown(terminal):
        local_runner.run(pipeline)
    node, decision, report = terminal.getvalue().splitlines()
    assert node.startswith("  Judge ")
    assert decision == "    REFUSED by 2 of 17 checks."
    (page,) = tmp_path.rglob("report.html")
    assert report == f"    report: {page}"
