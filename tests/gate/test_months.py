"""Months of simulated runs with known true changes."""

import dataclasses

import pytest

from benchmarks.gate import many_runs, months
from tfx_perf.config.gate import GateSettings
from tfx_perf.gate.ledger import FIRST_RUNS

WORLDS = months.WORLDS


@pytest.mark.slow_where("[!m]*")  # one of the worlds, with more happening than in the others
@pytest.mark.parametrize(
    "name",
    [
        "nothing changes", "autocorrelation 0.5", "trainings taken from cache",
        "model grows by 1% a day", "four times as fast from day 30 on",
        "another machine from day 60 on", "the same, Evaluator has a baseline model",
    ],
)  # fmt: skip
def test_healthy_runs_are_blessed_and_none_unchecked(name):
    found = months.score(WORLDS[name], count=1, seed=5)
    assert found.healthy_runs >= 90
    assert found.refused <= 0.05
    assert found.unchecked == 0


@pytest.mark.slow
@pytest.mark.parametrize("slowdown", [1.1, 1.5])
@pytest.mark.parametrize(
    "name", ["10% slower from day 60 on", "10% slower, model grows by 1% a day"]
)
def test_slowdowns_are_found(name, slowdown):
    world = dataclasses.replace(WORLDS[name], slowdown=slowdown)
    assert months.score(world, count=2, seed=3).found == 1.0


@pytest.mark.parametrize(
    "name", ["machine 12% slower from day 60 on", "two machines under one name, 15% apart"]
)
def test_a_slower_machine_refuses_nothing_if_runs_are_measured_in_turns(name):
    found = months.score(WORLDS[name], count=1, seed=5, in_turns=True)
    assert found.refused <= 0.03  # by other figures than the step time
    assert 0 < found.measured < 1


@pytest.mark.parametrize(
    ("name", "in_turns", "at_most"),
    [
        ("0.3% slower every day", False, 0.14), ("0.3% slower every day", True, 0.06),
        ("0.1% slower every day, quiet machine", True, 0.05),
        ("metrics 0.1% worse every day", False, 0.06),
    ],
)  # fmt: skip
def test_a_slow_drift_is_found(name, in_turns, at_most):
    found = months.score(WORLDS[name], count=1, seed=3, in_turns=in_turns)
    assert found.found == 1.0
    assert found.found_at <= at_most


def test_the_cost_of_judging_does_not_grow_with_the_runs_on_record(tmp_path, monkeypatch):
    # Counted, not timed: figures read and compared, with 3 pipelines of few runs.
    settings = GateSettings(baseline_runs=5, ledger_size=5)
    monkeypatch.setattr(many_runs, "GateSettings", lambda: settings)
    held = [len(list(tmp_path.glob("*.json"))) for _ in many_runs.judge(tmp_path, count=90)]
    most = 3 * (5 + FIRST_RUNS)
    assert max(held) <= most + 1
    assert held[-1] >= most - 1
