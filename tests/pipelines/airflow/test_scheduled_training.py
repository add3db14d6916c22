"""The training pipeline on taxi data, scheduled twice: real Airflow, all four components."""

import json
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from airflow_home import AirflowHome
from tfx import v1 as tfx

from tfx_perf.config import PerfConfig
from tfx_perf.mlmd import runs as recorded_runs
from tfx_perf.pipelines import taxi
from tfx_perf.pipelines.airflow import AirflowSettings, TaskSettings, deploy
from tfx_perf.pipelines.training_pipeline import TrainingCode, create_pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

_DAG = "taxi"
_ROWS = 2000
_CHEAP = {"input": {"tuning_seconds": 8}, "training": {"tuning_seconds": 15}}
_RULES = {"step_time_seconds": {"tolerance": 9.0}}
_GATE = {"use_defaults": False, "rules": _RULES}
_IMPOSSIBLE = {**_GATE, "rules": {**_RULES, "examples_per_second": {"min": 1e12}}}


def _pipeline(folder: pathlib.Path, *, label: str, gate: dict[str, Any]) -> tfx.dsl.Pipeline:
    """Returns the pipeline; with another label it trains again."""
    return create_pipeline(
        pipeline_name=_DAG,
        pipeline_root=str(folder / "artifacts"),
        data_path=str(folder / "project" / "data"),
        code=TrainingCode(
            preprocessing_fn="models.preprocessing.preprocessing_fn",
            run_fn="models.keras_model.model.run_fn",
            train_steps=100,
            eval_steps=5,
        ),
        eval_config=taxi.eval_config(),
        serving_model_dir=str(folder / "serving_model"),
        metadata_connection_config=tfx.orchestration.metadata.sqlite_metadata_connection_config(
            str(folder / "metadata.sqlite")
        ),
        config=PerfConfig.from_dict({**_CHEAP, "gate": gate}),
        run_label=label,
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """A folder with the stock project over the first rows of its data."""
    folder = tmp_path_factory.mktemp("taxi")
    taxi.write_project(folder / "project", batch_size=40)
    (path,) = (folder / "project" / "data").rglob("*.csv")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[: 1 + _ROWS]))
    sys.path.insert(0, str(folder / "project"))
    yield folder
    sys.path.remove(str(folder / "project"))


@pytest.fixture(scope="module")
def run_ids(home: AirflowHome, data: pathlib.Path) -> list[str]:
    """Two scheduled runs; the gate of the second has a limit that nothing keeps."""
    settings = AirflowSettings(
        schedule=60,
        python_path=(str(data / "project"),),
        default_args=TaskSettings(retries=1, retry_delay=5),
        nodes={"OptimizedTrainer": TaskSettings(execution_timeout="PT20M", priority_weight=5)},
    )

    def deployed(label: str, gate: dict[str, Any]) -> None:
        deploy(_pipeline(data, label=label, gate=gate), dags_folder=home.dags, settings=settings)

    deployed("first", _GATE)
    with home.serving("scheduler", "--skip-serve-logs"):
        first = home.wait_for_run(_DAG, timeout_seconds=1500)
        deployed("second", _IMPOSSIBLE)
        second = home.wait_for_run(_DAG, number=2, timeout_seconds=1500)
    for run_id in (first, second):
        print(run_id, json.dumps(home.ask("tasks", _DAG, run_id), indent=1))
    return [first, second]


def test_the_second_scheduled_run_compares_with_the_first_and_is_refused(home, run_ids, data):
    assert all(run_id.startswith("scheduled__") for run_id in run_ids)
    states = home.ask("runs", _DAG)
    assert [states[run_id] for run_id in run_ids] == ["success", "success"]
    found = {run.run_id: run for run in recorded_runs.read_runs(data / "metadata.sqlite")}
    runs = [found[run_id] for run_id in run_ids]
    for run in runs:
        assert {"InputPlan", "MemoryProfile", "PerfMetrics", "PerfEvaluation"} <= set(run.folders)
        assert run.metrics["examples_per_second"] > 0
    assert [(run.blessed, run.pushed) for run in runs] == [(True, True), (False, False)]
    text = pathlib.Path(runs[1].folders["PerfEvaluation"], "evaluation.json").read_text()
    assert [run["run_id"] for run in json.loads(text)["baseline_runs"]] == [run_ids[0]]


def test_decisions_reports_and_cached_results_are_notes(home, run_ids):
    first, second = (home.ask("tasks", _DAG, run_id) for run_id in run_ids)
    assert "blessed" in first["PerfEvaluator"]["note"]
    refusal = second["PerfEvaluator"]["note"]
    assert "REFUSED" in refusal
    assert "examples" in refusal
    for node in ("InputTuner", "MemoryProfiler", "OptimizedTrainer", "PerfEvaluator"):
        report = first[node]["note"].rpartition("report: ")[2]
        assert pathlib.Path(report).is_file()
    assert "REFUSED" in home.task_log(_DAG, run_ids[1], "PerfEvaluator")
    assert second["Transform"]["note"] == "taken from cache"
