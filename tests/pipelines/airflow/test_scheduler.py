"""A real scheduler runs a deployed pipeline on its schedule."""

import re

import light_components as light
import pytest
from airflow_home import AirflowHome

from tfx_perf.mlmd import runs as recorded_runs

# About a minute where nothing else runs.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def run_id(home: AirflowHome) -> str:
    """The id of a scheduled run that is over."""
    return light.scheduled(home)


@pytest.fixture(scope="module")
def tasks(home: AirflowHome, run_id: str) -> dict[str, dict]:
    return home.ask("tasks", "light", run_id)


def test_the_scheduled_run_succeeds_but_for_what_a_condition_skips(home, run_id, tasks):
    assert run_id.startswith("scheduled__")
    assert home.ask("runs", "light") == {run_id: "success"}
    assert {name: task["state"] for name, task in tasks.items()} == light.STATES
    # Strings that look like templates and typed parameters arrive.
    assert eval((home.folder / "log.txt").read_text()) == (light.JINJA, 3, 0.0)
    (run,) = recorded_runs.read_runs(home.folder / "metadata" / "metadata.sqlite")
    assert (run.run_id, run.pipeline, run.state) == (run_id, "light", "complete")


def test_a_task_that_failed_succeeds_on_retry(home, run_id, tasks):
    assert {name: task["try"] for name, task in tasks.items() if task["state"] == "success"} == {
        "Decide": 1, "Always": 1, "Gate": 2,
    }  # fmt: skip
    assert "Gate failed: " in home.task_log("light", run_id, "Gate")


def test_the_refusal_is_a_note_and_in_the_log(home, run_id, tasks):
    assert tasks["Gate"]["note"] == "REFUSED: 4% slower than {{ the }} baseline"
    log = home.task_log("light", run_id, "Gate")
    assert re.search(r"INFO - note: REFUSED: 4% slower", log)
    assert not any(task["note"] for name, task in tasks.items() if name != "Gate")
