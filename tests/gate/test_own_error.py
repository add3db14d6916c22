"""Trainings that are too short to be told apart; with them `shortness` and its remedy."""

import re

import numpy as np
import pytest
from gate_runs import only, run

from benchmarks.gate import short_runs
from tfx_perf.gate import own_error
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.outcome import Verdict
from tfx_perf.gate.verdict import evaluate

TIME = "step_time_seconds"
SETTINGS = only(step_time_seconds={"margin": 0.03})


def training(name, seconds, *, error=None, steps=300, minute=0):
    """Returns a run whose median step time has a standard error."""
    known = {} if error is None else {"step_time_median_error_ratio": error}
    return run(name, minute=minute, train_step_count=steps, **{TIME: seconds}, **known)


def judged(candidate, *blessed):
    """Returns the outcome of the step time."""
    (outcome,) = evaluate(
        candidate, ledger=Ledger(entries=blessed), settings=SETTINGS
    ).outcomes  # fmt: skip
    return outcome


def test_what_short_runs_differ_by_is_no_regression():
    blessed = training("old", 1.0, error=0.2)
    found = judged(training("new", 1.5, error=0.2), blessed)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "so short that the difference is known to within" in found.reason
    assert judged(training("new", 1.5, error=0.001), training("old", 1.0, error=0.001)).verdict is (
        Verdict.REGRESSION
    )


def test_the_blessed_runs_errors_count_too():
    assert judged(training("new", 1.3), training("old", 1.0, error=0.2)).verdict is (
        Verdict.INCONCLUSIVE
    )


def test_runs_that_do_not_know_their_error_are_judged_without():
    found = judged(training("new", 1.3), training("old", 1.0))
    assert found.verdict is Verdict.REGRESSION
    assert found.shortness is None


@pytest.mark.parametrize("short_blessed", [False, True])
def test_who_trains_as_much_longer_as_it_says_gets_the_run_through(short_blessed):
    blessed = training("old", 1.0, error=0.04 if short_blessed else 0.0002,
                       steps=300 if short_blessed else 3_000_000)  # fmt: skip
    found = judged(training("new", 1.05, error=0.03), blessed)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.shortness.is_of_baseline is short_blessed
    words = re.search(r"train ([\d.]+) times as long( and bless)?", found.remedy.suggestion)
    assert bool(words[2]) is short_blessed
    factor = float(words[1])
    steps, error = round(300 * factor), 0.03 / np.sqrt(factor)
    runs = [blessed]
    if short_blessed:
        runs.append(training("long", 1.0, error=error, steps=steps, minute=1))
    assert judged(training("new", 1.0, error=error, steps=steps), *runs).verdict is Verdict.PASS


def test_nobody_is_told_to_train_a_thousand_times_as_long():
    found = judged(training("new", 1.5, error=0.9), training("old", 1.0, error=0.002))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.shortness.factor > 1000
    assert "train longer or on a quieter machine" in found.remedy.suggestion


def test_a_long_run_counts_more_than_short_ones():
    short = [training(f"r{i}", 1.4, error=0.2, minute=i) for i in range(3)]
    long = training("long", 1.0, error=0.2 / np.sqrt(1000), steps=300_000, minute=9)
    found = judged(training("new", 1.0, error=0.005, steps=300_000), *short, long)
    assert found.baseline == pytest.approx(1.0, abs=0.02)


def test_a_short_run_is_no_level_of_its_own():
    blessed = [training(f"r{i}", value, error=0.1, minute=i) for i, value in enumerate((1.27, 1.0))]
    assert judged(training("new", 1.1, error=0.1), *blessed).baseline == pytest.approx(1.135)


def test_a_run_that_had_a_calm_minute_has_the_usual_error():
    blessed = [training(f"r{i}", 1.0, error=0.1, steps=400) for i in range(3)]
    found = own_error.of(TIME, candidate=training("new", 1.0, error=0.01, steps=100),
                         blessed=blessed)  # fmt: skip
    assert found.candidate == pytest.approx(0.2)  # a fourth of the steps
    assert own_error.of("train_loss", candidate=blessed[0], blessed=blessed).candidate == 0.0


@pytest.mark.parametrize("blessed_runs", [1, 8])
def test_short_runs_on_a_busy_machine_are_seldom_called_a_regression(blessed_runs):
    found = short_runs.judge_kind(
        np.random.default_rng(1), is_busy=True, steps=300, blessed_runs=blessed_runs, effect=0.0,
        count=40,
    )  # fmt: skip
    assert found.regression <= 0.1  # 0.43 and 0.2 if runs' own errors did not count


@pytest.mark.parametrize("steps", [300, 10_000])
def test_on_a_quiet_machine_runs_are_judged_as_ever(steps):
    random = np.random.default_rng(2)
    kind = {"is_busy": False, "steps": steps, "blessed_runs": 8, "count": 20}
    assert short_runs.judge_kind(random, effect=0.0, **kind).refused <= 0.05
    assert short_runs.judge_kind(random, effect=0.1, **kind).regression >= 0.9
