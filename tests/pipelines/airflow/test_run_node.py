"""One node after the other, in this process: conditions, parameters, failures.

Retries are attempts of their own.
"""

import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable

import light_components as light
import pytest
from ml_metadata.metadata_store import metadata_store
from ml_metadata.proto import metadata_store_pb2 as mlmd
from tfx import v1 as tfx

from tfx_perf.core import errors
from tfx_perf.pipelines.airflow import topology
from tfx_perf.pipelines.airflow.run_node import run_node


@pytest.fixture
def run(tmp_path: pathlib.Path) -> Callable:
    """Compiles a pipeline and returns a function that runs one of its nodes."""

    def compile_it(pipeline: tfx.dsl.Pipeline) -> Callable:
        path = tmp_path / "pipeline.json"
        path.write_text(topology.pipeline_as_json(topology.compile_pipeline(pipeline)))

        def run_one(node: str, *, run_id: str = "first", **values: object) -> str | None:
            return run_node(str(path), node, run_id=run_id, values=values)

        return run_one

    return compile_it


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Callable[[], metadata_store.MetadataStore]:
    """Opens the pipeline's metadata."""

    def open_it() -> metadata_store.MetadataStore:
        connection = mlmd.ConnectionConfig()
        connection.sqlite.filename_uri = str(tmp_path / "metadata" / "metadata.sqlite")
        return metadata_store.MetadataStore(connection)

    return open_it


def _states(store: metadata_store.MetadataStore, node: str) -> list[str]:
    context = store.get_context_by_type_and_name("node", f"light.{node}")
    executions = sorted(store.get_executions_by_context(context.id), key=lambda item: item.id)
    return [mlmd.Execution.State.Name(item.last_known_state) for item in executions]


def _log(folder: pathlib.Path) -> list[tuple]:
    return [eval(line) for line in (folder / "log.txt").read_text().splitlines()]


@pytest.mark.parametrize("ratio", [2, 0.0])  # a default that the compiled pipeline has lost
def test_conditions_parameters_and_odd_strings(run, tmp_path, ratio):
    run = run(light.everything(tmp_path))
    assert run("Decide") == ""
    assert run("Never") is None
    assert run("Always", ratio=ratio) == ""
    assert _log(tmp_path) == [(light.JINJA, 3, float(ratio))]


def test_a_failure_is_recorded_and_a_retry_is_an_execution_of_its_own(run, store, tmp_path):
    run = run(light.everything(tmp_path))
    with pytest.raises(Exception, match="the first try always fails"):
        run("Gate")
    assert _states(store(), "Gate") == ["FAILED"]
    assert run("Gate") == "REFUSED: 4% slower than {{ the }} baseline"
    assert _states(store(), "Gate") == ["FAILED", "COMPLETE"]
    (artifact,) = store().get_artifacts()
    assert artifact.uri.endswith("/2")  # the execution's id: a place of its own


def test_a_cleared_task_runs_again_and_others_read_its_new_output(run, store, tmp_path):
    record = light.Record(path=str(tmp_path / "log.txt"), text="text")
    use = light.Use(what=record.outputs["done"])
    run = run(light.pipeline(tmp_path, [record, use]))
    for _ in range(2):
        assert run("Record") == ""
        assert run("Use") == ""
    assert len(_log(tmp_path)) == 2
    assert _states(store(), "Record") == ["COMPLETE"] * 2
    opened = store()
    uses = sorted(opened.get_executions_by_type("light_components.Use"), key=lambda item: item.id)
    inputs = [
        event.artifact_id
        for use in uses
        for event in opened.get_events_by_execution_ids([use.id])
        if event.type == mlmd.Event.INPUT
    ]
    assert len(inputs) == len(set(inputs)) == 2  # one each, not both


def test_another_run_takes_from_cache_if_the_pipeline_says_so(run, store, tmp_path):
    pipeline = light.pipeline(tmp_path, [light.Decide(value=1)])
    pipeline.enable_cache = True
    run = run(pipeline)
    assert run("Decide") == ""
    assert run("Decide", run_id="second") == "taken from cache"
    assert run("Decide", run_id="second") == ""  # cleared
    assert _states(store(), "Decide") == ["COMPLETE", "CACHED", "COMPLETE"]


def test_an_interrupted_execution_counts_as_failed(run, store, tmp_path):
    run = run(light.pipeline(tmp_path, [light.Decide(value=1)]))
    run("Decide")
    opened = store()
    (execution,) = opened.get_executions()
    execution.last_known_state = mlmd.Execution.RUNNING
    opened.put_executions([execution])
    run("Decide")
    assert _states(store(), "Decide") == ["FAILED", "COMPLETE"]


def test_resolvers_see_outputs_of_other_runs_and_can_be_cleared(run, store, tmp_path):
    latest = tfx.dsl.Resolver(
        strategy_class=tfx.dsl.experimental.LatestArtifactStrategy,
        flag=tfx.dsl.Channel(type=tfx.types.standard_artifacts.Integer),
    ).with_id("latest")
    use = light.Flagged(flag=latest.outputs["flag"])
    run = run(light.pipeline(tmp_path, [light.Decide(value=1), latest, use]))
    with pytest.raises(RuntimeError, match="latest"):
        run("latest")
    assert _states(store(), "latest") == ["FAILED"]
    for run_id in ("first", "second"):
        for node in ("Decide", "latest", "latest", "Flagged"):
            assert run(node, run_id=run_id) == ""


@pytest.mark.parametrize(
    ("node", "values", "received"),
    [
        ("Nobody", {}, "node=Nobody"),
        ("Decide", {"ration": 1}, "parameter=ration"),
        ("Decide", {"ratio": "much"}, "ratio=much"),
    ],
)
def test_user_errors(run, tmp_path, node, values, received):
    run = run(light.everything(tmp_path))
    with pytest.raises(errors.UserError, match=received):
        run(node, **values)


@pytest.mark.parametrize("text", [None, "{", "[1]"])
def test_a_pipeline_that_cannot_be_read(tmp_path, text):
    path = tmp_path / "pipeline.json"
    if text:
        path.write_text(text)
    with pytest.raises(errors.UserError, match="deploy it again"):
        run_node(str(path), "Decide", run_id="first", values={})


def test_a_single_node_travels_in_an_environment_variable(tmp_path):
    ir = topology.compile_pipeline(light.everything(tmp_path))
    uri = topology.as_data_uri(ir, node_id="Decide")
    assert not set("{}%#") & set(uri)
    assert run_node(uri, "Decide", run_id="first", values={}) == ""


@pytest.mark.slow
def test_a_node_that_airflow_ends_is_recorded_as_failed(store, tmp_path):
    pipeline = light.pipeline(tmp_path, [light.Sleep(marker=str(tmp_path / "begun"))])
    path = tmp_path / "pipeline.json"
    path.write_text(topology.pipeline_as_json(topology.compile_pipeline(pipeline)))
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(pathlib.Path(__file__).parent), *sys.path]),
        "TFX_PERF_PIPELINE": str(path), "TFX_PERF_NODE": "Sleep", "TFX_PERF_RUN_ID": "first",
        "TFX_PERF_PARAMETERS": "{}",
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "tfx_perf.pipelines.airflow.run_node"], env=variables,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    while not (tmp_path / "begun").exists():
        assert process.poll() is None
        time.sleep(0.1)
    process.terminate()
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 1
    assert output.splitlines()[-1].startswith("Sleep failed: ")
    assert _states(store(), "Sleep") == ["FAILED"]
