"""A real scheduler runs a deployed pipeline on its schedule."""

import pathlib
import re

import light_components as light
import pytest
from airflow_home import AirflowHome

from tfx_perf.mlmd import runs as recorded_runs
from tfx_perf.pipelines.airflow import deploy

# About a minute where nothing else runs.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

_HERE = str(pathlib.Path(__file__).parent)


@pytest.fixture(scope="module")
def run_id(home: AirflowHome) -> str:
    """The id of a scheduled run that is over."""
    deploy(
        light.everything(home.folder),
        dags_folder=home.dags,
        settings={
            "schedule": 3600,
            "python_path": [_HERE],
            "default_args": {"retries": 1, "retry_delay": 1},
        },
    )
    with home.serving("scheduler", "--skip-serve-logs"):
        return home.wait_for_run("light")


@pytest.fixture(scope="module")
def tasks(home: AirflowHome, run_id: str) -> dict[str, dict]:
    return home.ask("tasks", "light", run_id)


def test_the_scheduled_run_succeeds(home, run_id):
    assert run_id.startswith("scheduled__")
    assert home.ask("runs", "light") == {run_id: "success"}


def test_what_depends_on_a_false_condition_is_skipped_and_the_rest_runs(tasks):
    assert {name: task["state"] for name, task in tasks.items()} == {
        "Decide": "success",
        "Never": "skipped",
        "AfterNever": "skipped",
        "Always": "success",
        "Gate": "success",
    }


def test_a_task_that_failed_succeeds_on_retry(home, run_id, tasks):
    assert {name: task["try"] for name, task in tasks.items() if task["state"] == "success"} == {
        "Decide": 1, "Always": 1, "Gate": 2,
    }  # fmt: skip
    assert "Gate failed: " in home.task_log("light", run_id, "Gate")


def test_strings_that_look_like_templates_and_typed_parameters_arrive(home, tasks):
    assert eval((home.folder / "log.txt").read_text()) == (light.JINJA, 3, 0.0)


def test_the_refusal_is_a_note_and_in_the_log(home, run_id, tasks):
    assert tasks["Gate"]["note"] == "REFUSED: 4 % slower than {{ the }} baseline"
    log = home.task_log("light", run_id, "Gate")
    assert re.search(r"INFO - note: REFUSED: 4 % slower", log)
    assert not any(task["note"] for name, task in tasks.items() if name != "Gate")


def test_the_run_is_in_ml_metadata_under_airflows_id(home, run_id, tasks):
    (run,) = recorded_runs.read_runs(home.folder / "metadata" / "metadata.sqlite")
    assert (run.run_id, run.pipeline, run.state) == (run_id, "light", "complete")
