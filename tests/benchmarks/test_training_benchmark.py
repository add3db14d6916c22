"""The training benchmark: its arithmetic, and a training of its own modules end to end."""

import functools
import itertools
import subprocess
import sys

import pytest

from benchmarks.training import in_turns, results, run, targets, workloads
from tfx_perf import isolate
from tfx_perf.core import errors


def run_of(step_seconds, *, start=0.0):
    return results.Run(
        step_time_seconds=(step_seconds,) * 3,
        start_time_seconds=start,
        trial_time_seconds=0.0,
        plan="Keras fit",
        train_loss=1.0,
    )


def cell(workload="dense", *, ours=0.05, regret=0.0, tuned=0.04):
    return results.CellResult(
        cell=results.Cell(workload=workload, line="keras"),
        batch_size=10,
        runs={
            results.STOCK: run_of(0.1, start=10.0),
            results.OPTIMIZED: run_of(ours, start=30.0),
            results.TUNED: run_of(tuned, start=30.0),
        },
        regret=results.Regret(
            speedups={}, chosen="Keras fit", best="Keras fit", regret_ratio=regret
        ),
    )


def test_ratios_and_pay_back():
    found = cell()
    assert found.steady_ratio(results.OPTIMIZED).value == pytest.approx(2.0)
    assert found.whole_ratio(results.OPTIMIZED) == pytest.approx(2010 / 1030)
    assert found.pay_back_steps(results.OPTIMIZED) == pytest.approx(20.0 / 0.05)
    assert cell(ours=0.2).pay_back_steps(results.OPTIMIZED) is None
    assert found.steady_ratio("no such kind") is None


def test_verdicts_distinguish_met_from_missed():
    verdicts = targets.verdicts([cell(ours=0.08), cell("lstm", ours=0.2, regret=0.2)])
    assert "optimized, geometric mean of the rest >= 1.3: MISSED (0.791)" in verdicts
    assert "optimized, no cell below 0.97: MISSED (0.5)" in verdicts
    assert "tuned, no cell below 0.97: met (2.5)" in verdicts
    assert "regret <= 3% in the median: MISSED (10.0%)" in verdicts
    assert targets.verdicts([cell("taxi-40")]) == ("taxi-40 keras: >= 6: MISSED (2.5)",)
    assert targets.verdicts([]) == ()


# "Trainings" that record each step and stop on a signal.
STEPS = """
import time
from types import SimpleNamespace
from benchmarks.training.clock import Clock

def train(clock, step_seconds, steps, log):
    model = SimpleNamespace(optimizer=SimpleNamespace(iterations=0), stop_training=False)
    Clock(clock).follow(model)
    time.sleep(0.1)
    while not model.stop_training and model.optimizer.iterations < steps:
        time.sleep(step_seconds)
        with open(log, "a") as file:
            print(step_seconds, file=file)
        model.optimizer.iterations += 1
    time.sleep(0.1)
    return {"steps": model.optimizer.iterations}
"""


def training(tmp_path, step_seconds, steps, clock):
    return isolate.run(
        "paced_steps:train",
        {
            "clock": str(clock),
            "step_seconds": step_seconds,
            "steps": steps,
            "log": str(tmp_path / "steps.txt"),
        },
        timeout_seconds=120,
        log_path=tmp_path / f"{step_seconds}.log",
    )


@pytest.fixture
def paced(tmp_path, monkeypatch):
    (tmp_path / "paced_steps.py").write_text(STEPS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(in_turns, "_BLOCK_SECONDS", 0.3)
    monkeypatch.setattr(in_turns, "_WARM_UP_SECONDS", 0.2)
    return functools.partial(functools.partial, training, tmp_path)


def test_only_one_training_runs_at_a_time(paced, tmp_path):
    fast, slow = in_turns.train_in_turns(
        [paced(0.01, 10**6), paced(0.05, 10**6)], rounds=3, start_seconds=60
    )
    for found, blocks, start in (fast, slow):
        assert len(blocks) == 3
        assert found["steps"] > 0
        assert start > 0
    # A sleep that spans a pause is cut short by it; how much longer a block takes depends on
    # what else the machine does.
    assert min(slow[1]) > min(fast[1])
    whose = (tmp_path / "steps.txt").read_text().split()
    changes = sum(one != after for one, after in itertools.pairwise(whose))
    # At the start, in three rounds (A B, B A, A B), at the end; otherwise some at every slow step.
    assert changes <= 1 + 5 + 2
    assert whose.count("0.05") > 2 * changes


def test_a_training_that_ends_too_soon_is_an_error(paced):
    with pytest.raises(errors.MeasurementError, match="A training ended early"):
        in_turns.train_in_turns([paced(0.002, 5)], rounds=1, start_seconds=60)


@pytest.mark.slow
def test_a_module_is_trained_by_all_trainers_in_turns(tmp_path):
    settings = run.Settings(data_folder=tmp_path, rounds=2, regret=False)
    found = run.measure(results.Cell(workload="lstm", line="keras"), settings)
    assert set(found.runs) == set(results.KINDS)
    stock, ours = found.runs[results.STOCK], found.runs[results.OPTIMIZED]
    assert stock.plan == "Keras fit"
    assert stock.trial_time_seconds == 0 < ours.trial_time_seconds < ours.start_time_seconds
    for one in found.runs.values():
        assert len(one.step_time_seconds) == 2
        assert all(0.001 < seconds < 1 for seconds in one.step_time_seconds)


@pytest.mark.slow
def test_the_command_names_its_workloads():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.training", "--workload", "nonsense"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert all(name in done.stderr for name in workloads.NAMES)
