"""The training benchmark: its arithmetic, and a training of its own modules end to end."""

import subprocess
import sys

import pytest

from benchmarks.training import results, targets, train_job, workloads


def run(step_seconds, *, whole=100.0, trials=0.0):
    return results.Run(
        mean_step_time_seconds=step_seconds,
        fit_time_seconds=whole,
        component_time_seconds=whole,
        trial_time_seconds=trials,
        plan="plain fit",
        train_loss=1.0,
    )


def cell(workload="dense", *, ours=0.05, regret=0.0, tuned=0.04):
    return results.CellResult(
        cell=results.Cell(workload=workload, line="keras"),
        steps=100,
        batch_size=10,
        runs={
            results.STOCK: (run(0.1), run(0.1)),
            results.OPTIMIZED: (run(ours, whole=50.0, trials=10.0),) * 2,
            results.TUNED: (run(tuned),) * 2,
        },
        regret=results.Regret(
            speedups={}, chosen="plain fit", best="plain fit", regret_ratio=regret
        ),
    )


def test_ratios_and_pay_back():
    found = cell()
    assert found.steady_ratio(results.OPTIMIZED) == pytest.approx(2.0)
    assert found.whole_ratio(results.OPTIMIZED) == pytest.approx(2.0)
    assert found.pay_back_steps(results.OPTIMIZED) == pytest.approx(10.0 / 0.05)
    assert cell(ours=0.2).pay_back_steps(results.OPTIMIZED) is None
    assert found.steady_ratio("no such kind") is None


def test_verdicts_tell_met_from_missed():
    verdicts = targets.verdicts([cell(ours=0.08), cell("lstm", ours=0.2, regret=0.2)])
    assert "optimized, geometric mean of the rest >= 1.3: MISSED (0.791)" in verdicts
    assert "optimized, no cell below 0.97: MISSED (0.5)" in verdicts
    assert "tuned, no cell below 0.97: met (2.5)" in verdicts
    assert "regret <= 5% in the median: MISSED (10.0%)" in verdicts
    assert targets.verdicts([cell("taxi-40")]) == ("taxi-40 keras: >= 6: MISSED (2.5)",)
    assert targets.verdicts([]) == ()


@pytest.mark.slow
def test_a_module_is_trained_by_both_trainers(tmp_path):
    found = {}
    for kind in (results.STOCK, results.OPTIMIZED):
        values = train_job.run("lstm", kind=kind, steps=30, data_folder=str(tmp_path))
        found[kind] = results.Run.model_validate(values)
    assert found[results.STOCK].plan == "plain fit"
    assert found[results.STOCK].trial_time_seconds == 0
    assert found[results.OPTIMIZED].trial_time_seconds > 0
    for one in found.values():
        assert 0 < one.mean_step_time_seconds < one.fit_time_seconds < one.component_time_seconds


def test_the_command_names_its_workloads():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.training", "--workload", "nonsense"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert all(name in done.stderr for name in workloads.NAMES)
