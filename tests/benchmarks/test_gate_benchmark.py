"""The gate's benchmark: its simulations, and that its targets can be missed."""

import numpy as np
import pytest

from benchmarks.gate import histories, judging, real, results
from benchmarks.gate.histories import Cell
from tfx_perf.config.gate import GateSettings
from tfx_perf.config.rule import Rule
from tfx_perf.gate.run import Run


def cell(**changes):
    return Cell(**{"run_sd": 0.01, "autocorrelation": 0.0, "runs": 8, "effect": 0.0, **changes})


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_runs_scatter_as_the_cell_says(rho):
    drawn = histories.simulate(cell(autocorrelation=rho), count=120, seed=1).levels
    assert np.std(drawn) == pytest.approx(0.01, rel=0.08)
    pairs = drawn - drawn.mean()
    found = np.mean(pairs[..., 1:] * pairs[..., :-1]) / np.mean(pairs**2)
    # Part of the scatter is that of the steps, which successive runs do not share.
    assert found == pytest.approx(rho * (1 - histories._MEDIAN_VARIANCE / 0.01**2), abs=0.06)


def test_only_the_first_metric_of_the_last_run_is_worse():
    levels = histories.simulate(cell(effect=0.1), count=100, seed=1).levels.mean(axis=0)
    assert levels[0, -1] / levels[0, :-1].mean() == pytest.approx(1.1, abs=0.004)
    assert levels[1:, -1].mean() / levels[1:, :-1].mean() == pytest.approx(1, abs=0.004)


@pytest.mark.slow
def test_the_gate_meets_its_targets_on_a_sample():
    assert judging.judge(histories.simulate(cell(), count=100, seed=2))["refused"] <= 0.04
    shares = judging.judge(histories.simulate(cell(effect=0.1), count=60, seed=3))
    assert shares["regression"] >= 0.95


def test_a_missed_target_is_reported_as_missed():
    def result(refused, **changes):
        return results.CellResult(
            cell=cell(**changes), count=1, refused=refused, regression=refused, rivals={"x": 1.0}
        )

    good = [result(0.01), result(0.85, effect=0.05), result(0.99, effect=0.10)]
    assert [words.split(":")[0] for words in results.verdicts(good)] == ["met"] * 3
    bad = [*good, result(0.03), result(0.7, effect=0.05), result(0.9, effect=0.1)]
    assert [words.split(":")[0] for words in results.verdicts(bad)] == ["MISSED"] * 3
    assert "| x | 100.0 |" in results.table(good)


def test_real_runs_are_judged_against_the_unchanged_ones_before_them():
    def runs(factor):
        return [
            Run(
                run_id=str(number),
                time=f"2026-01-01T00:0{number}:00Z",
                environment={},
                figures={"step_time_seconds": factor * (1 + number / 1000)},
            )
            for number in range(8)
        ]

    settings = GateSettings(rules={"step_time_seconds": Rule(tolerance=0.03)}, use_defaults=False)
    judged = real.judge({real.SAME: runs(1.0), "slow": runs(1.1)}, settings)
    assert judged[real.SAME] == {"runs": 5, "refused": 0}
    assert judged["slow"] == {"runs": 5, "refused": 5, "step_time_seconds: regression": 5}
    assert 0 < real.noise({real.SAME: runs(1.0)})["step_time_seconds"] < 0.01
