"""A week of two projects with one ledger: vocabularies grow, and one day somebody is careless."""

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from airflow_home import AirflowHome
from week_project import DAYS, SLOW_DAY, WeekProject

from tfx_perf.gate.ledger_store import Mirror

pytestmark = [pytest.mark.slow, pytest.mark.timeout(10_800)]


def _projects(folder: pathlib.Path) -> list[WeekProject]:
    return [
        WeekProject(folder / name, name=name, ledger=folder / "ledger", seed=seed)
        for seed, name in enumerate(("orders", "returns"))
    ]


def _live(projects: list[WeekProject], run: Callable[[int], None]) -> None:
    for day in range(1, DAYS + 1):
        for project in projects:
            project.begin_day(day, slow=project.name == "orders" and day == SLOW_DAY)
        run(day)
        for project in projects:
            _show(day, project.verdicts()[-1])


def _show(day: int, verdict: dict[str, Any]) -> None:
    print(day, verdict["project"], verdict["run_id"], f"{verdict['parameters']:.0f}",
          f"{verdict['step_time_seconds'] * 1e6:.0f} us", len(verdict["baseline"]),
          verdict["headline"], flush=True)  # fmt: skip


def _check(projects: list[WeekProject], ledger: pathlib.Path) -> None:
    found = {project.name: project.verdicts() for project in projects}
    for name, verdicts in found.items():
        assert len(verdicts) == DAYS
        slow_days = [day for day, item in enumerate(verdicts, start=1) if not item["blessed"]]
        assert slow_days == ([SLOW_DAY] if name == "orders" else [])
        for before, verdict in enumerate(verdicts):
            # Not with all: within a week the model grows beyond what is comparable.
            assert len(verdict["baseline"]) >= min(before, 1)
            assert {pipeline for pipeline, _ in verdict["baseline"]} <= {name}
        assert len({verdict["parameters"] for verdict in verdicts}) == DAYS
    blessed = [run.pipeline for run in Mirror(str(ledger)).read().entries]
    assert sorted(blessed) == ["orders"] * (DAYS - 1) + ["returns"] * DAYS


def test_on_this_machine(tmp_path):
    projects = _projects(tmp_path)

    def run(day: int) -> None:
        for project in projects:
            project.run_locally(day)

    _live(projects, run)
    _check(projects, tmp_path / "ledger")


def test_on_airflow_where_the_runs_of_both_have_one_id(home: AirflowHome, tmp_path):
    projects = _projects(tmp_path)

    def run(day: int) -> None:
        for project in projects:
            project.deploy(home.folder)
        for project in projects:
            home.trigger(project.name, date=f"2026-01-{day:02}")
        for project in projects:
            home.wait_for_run(project.name, number=day, timeout_seconds=2400)

    with home.serving("scheduler", "--skip-serve-logs"):
        _live(projects, run)
    ids = [[verdict["run_id"] for verdict in project.verdicts()] for project in projects]
    assert ids[0] == ids[1]
    _check(projects, tmp_path / "ledger")
