"""How much figures vary: priors, levels, runs' own errors, the host; and Holm's levels."""

import re

import numpy as np
import pytest
from gate_runs import ledger_of, noisy, only, run

from benchmarks.gate import short_runs
from tfx_perf.config.gate import GateSettings
from tfx_perf.core import metrics
from tfx_perf.core.metrics import Direction
from tfx_perf.gate import noise, verdict
from tfx_perf.gate.decision import Verdict
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.noise import (
    PRIOR_DEGREES,
    PredictiveDistribution,
    holm_levels,
    host_factor,
    predict,
)
from tfx_perf.gate.verdict import evaluate


def test_every_time_is_in_the_set_of_those_taken_once_or_over_the_steps():
    """A new one needs a line in one of the two sets; otherwise 1% would be expected of it."""
    times = {
        key
        for key, metric in metrics.CATALOGUE.items()
        if metric.unit == "seconds" and metric.direction is not Direction.NONE
    }
    assert times <= noise._ONCE | verdict.PER_STEP


def test_the_sets_name_figures_of_the_catalogue():
    named = noise._ONCE | verdict.PER_STEP | metrics._DETERMINISTIC | metrics.OF_MEAN_STEP_TIME
    assert named | set(metrics.STEP_TIME_EXPONENTS) <= set(metrics.CATALOGUE)


def test_without_a_prior_it_is_the_textbook_interval():
    # n = 5, mean 10, sd 1.5811; t(.95, 4) = 2.1318: 2.1318 * sqrt(1.2) * 1.5811
    found = PredictiveDistribution(center=10, spread=1.5811, degrees=4, count=5)
    assert found.half_width(0.05) == pytest.approx(3.6925, abs=1e-3)
    assert found.p_value(3.6925) == pytest.approx(0.05, abs=1e-4)


def test_a_single_run_has_the_prior_and_many_runs_have_their_own_spread():
    one = predict([10.0], prior=0.5)
    assert (one.spread, one.degrees, one.center) == (0.5, PRIOR_DEGREES, 10.0)
    samples = np.random.default_rng(0).normal(10, 2, size=400)
    many = predict(samples, prior=0.01)
    assert many.spread == pytest.approx(np.std(samples, ddof=1), rel=0.01)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_it_covers_as_often_as_it_says_if_the_prior_is_as_assumed(count):
    generator = np.random.default_rng(count)
    trials, above = 4000, 0
    for _ in range(trials):
        sd = np.sqrt(PRIOR_DEGREES / generator.chisquare(PRIOR_DEGREES))
        draws = generator.normal(0, sd, size=count + 1)
        found = predict(draws[:-1], prior=1.0)
        above += draws[-1] > found.center + found.half_width(0.05)
    assert above / trials == pytest.approx(0.05, abs=0.012)


def test_without_any_spread_only_equal_figures_are_expected():
    found = predict([0.0, 0.0], prior=0.0)
    assert (found.p_value(1e-9), found.p_value(0.0), found.half_width(0.01)) == (0.0, 1.0, 0.0)


@pytest.mark.parametrize("factor", [1.0, 3.0])
@pytest.mark.parametrize("count", [2, 4, 8, 40])
def test_a_noisy_host_shows_in_all_metrics_together(factor, count):
    generator = np.random.default_rng(3)
    found = [
        host_factor([(generator.normal(100, 0.5 * factor, size=count), 0.5) for _ in range(9)])
        for _ in range(100)
    ]
    # The more runs, the more certain it is: the prior counts as four degrees of freedom.
    freedom = count - 1
    expected = np.sqrt((PRIOR_DEGREES + freedom * factor**2) / (PRIOR_DEGREES + freedom))
    assert np.median(found) == pytest.approx(expected, rel=0.12)


def test_two_runs_that_are_far_apart_do_not_lock_the_gate():
    """If no further run were blessed, the gate could never learn that the machine is quiet."""
    ledger, settings = ledger_of("step_time_seconds", [1.0, 1.06]), only(
        step_time_seconds={"tolerance": 0.03}
    )
    assert evaluate(run("new", step_time_seconds=1.02), ledger=ledger, settings=settings).blessed


def test_one_noisy_metric_is_not_the_host_and_a_quiet_host_is_no_factor():
    quiet = [([1.0, 1.0001, 0.9999, 1.0], 0.01)] * 8
    assert host_factor([*quiet, ([1.0, 1.5, 0.5, 1.0], 0.01)]) == 1.0
    assert host_factor([([1.0], 0.01)]) == 1.0
    assert host_factor([]) == 1.0


@pytest.mark.parametrize(
    ("p_values", "rejected"),
    [
        ([0.001, 0.04, 0.015, 0.02], [True, True, True, True]),
        ([0.001, 0.06, 0.02, 0.03], [True, False, False, False]),  # 0.02 > 0.05 / 3 stops all
        ([0.013, 0.013], [True, True]),
        ([0.026, 0.03], [False, False]),
        ([], []),
    ],
)
def test_holm_steps_down_and_stops_at_the_first_that_does_not_reject(p_values, rejected):
    levels = holm_levels(p_values, rate=0.05)
    assert [p <= level for p, level in zip(p_values, levels, strict=True)] == rejected


KEY = "step_time_seconds"


@pytest.mark.parametrize(
    ("figures", "since"),
    [
        ([1.0], 0),
        ([1.12, 0.258], 1),
        ([1.0, 1.0, 1.0, 0.5, 0.5], 3),
        ([1.0, 1.01, 0.99, 1.3, 1.29, 1.31], 3),  # a slowdown that a person has blessed
        ([1.0, 0.99, 1.5, 1.01, 1.0, 0.98], 0),  # one run that is far off
        ([1.0, 0.99, 1.01, 1.0, 0.9], 0),  # a single run, which may be luck
        ([3.0, 3.0, 2.0, 2.0, 1.0, 1.0], 4),
        ([1.0, 1.2, 0.8, 1.1, 0.9, 1.2], 0),  # noise
    ],
)
def test_runs_count_since_the_last_change_of_level(figures, since):
    assert noise.level_begin(figures, noise=0.01) == since


@pytest.mark.parametrize("correlation", [0.0, 0.5])
@pytest.mark.parametrize("sd", [0.005, 0.02, 0.05])
def test_noise_is_not_a_change_of_level(sd, correlation):
    generator, cut = np.random.default_rng(1), 0
    for _ in range(500):
        scatter = generator.normal(size=8) * sd * np.sqrt(1 - correlation**2)
        for i in range(1, 8):
            scatter[i] += correlation * scatter[i - 1]
        figures = 1 + scatter
        cut += noise.level_begin(figures, noise=0.01) > 0
    assert cut / 500 <= 0.02


def test_a_run_no_worse_than_every_other_is_never_inconclusive():
    loud = ledger_of(KEY, noisy(8, sd=0.3, seed=2))
    best = min(entry.figures[KEY] for entry in loud.entries)
    settings = GateSettings(rules={KEY: {"tolerance": 0.03}}, use_defaults=False)
    for value in (best, 0.9 * best):
        decision = evaluate(run("new", **{KEY: value}), ledger=loud, settings=settings)
        assert decision.outcomes[0].verdict is Verdict.PASS


@pytest.mark.parametrize(("key", "lucky"), [("step_time_seconds", 0.7), ("train_loss", 0.5)])
def test_one_lucky_run_does_not_refuse_all_later_runs(key, lucky):
    usual = noisy(15, sd=0.01, seed=1)
    ledger = ledger_of(key, [*usual, lucky])
    settings = only(**{key: {"tolerance": 0.05}})
    assert evaluate(run("new", minute=60, **{key: 1.0}), ledger=ledger, settings=settings).blessed
    # A run slower than the lucky one has lost part of the gain, and two lucky runs are a level.
    for values, value in (([*usual, lucky], lucky + 0.1), ([*usual, lucky, lucky], 1.0)):
        slower = run("new", minute=60, **{key: value})
        decision = evaluate(slower, ledger=ledger_of(key, values), settings=settings)
        assert not decision.blessed


TIME = "step_time_seconds"
SETTINGS = only(step_time_seconds={"tolerance": 0.03})


def training(name, seconds, *, error=None, steps=300, minute=0):
    """Returns a run whose median step time has a standard error."""
    known = {} if error is None else {"step_time_median_error_ratio": error}
    return run(name, minute=minute, train_step_count=steps, **{TIME: seconds}, **known)


def judged(candidate, *blessed):
    (outcome,) = evaluate(
        candidate, ledger=Ledger(entries=blessed), settings=SETTINGS
    ).outcomes  # fmt: skip
    return outcome


@pytest.mark.parametrize("short_blessed", [False, True])
def test_training_as_much_longer_as_suggested_lets_the_run_pass(short_blessed):
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


def test_training_a_thousand_times_as_long_is_never_suggested():
    found = judged(training("new", 1.5, error=0.9), training("old", 1.0, error=0.002))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.shortness.factor > 1000
    assert "train longer or on a quieter machine" in found.remedy.suggestion


def test_a_long_run_counts_more_than_short_ones():
    short = [training(f"r{i}", 1.4, error=0.2, minute=i) for i in range(3)]
    long = training("long", 1.0, error=0.2 / np.sqrt(1000), steps=300_000, minute=9)
    found = judged(training("new", 1.0, error=0.005, steps=300_000), *short, long)
    assert found.baseline == pytest.approx(1.0, abs=0.02)


def test_a_short_run_is_not_its_own_level():
    blessed = [training(f"r{i}", value, error=0.1, minute=i) for i, value in enumerate((1.27, 1.0))]
    assert judged(training("new", 1.1, error=0.1), *blessed).baseline == pytest.approx(1.135)


def test_a_run_in_a_calm_minute_has_the_usual_error():
    blessed = [training(f"r{i}", 1.0, error=0.1, steps=400) for i in range(3)]
    found = noise.own_errors(TIME, candidate=training("new", 1.0, error=0.01, steps=100),
                         blessed=blessed)  # fmt: skip
    assert found.candidate == pytest.approx(0.2)  # a fourth of the steps, twice the error
    assert noise.own_errors("train_loss", candidate=blessed[0], blessed=blessed).candidate == 0.0


@pytest.mark.parametrize("blessed_runs", [1, 8])
def test_short_runs_on_a_busy_machine_are_seldom_called_a_regression(blessed_runs):
    found = short_runs.judge_kind(
        np.random.default_rng(1), is_busy=True, steps=300, blessed_runs=blessed_runs, effect=0.0,
        count=40,
    )  # fmt: skip
    assert found.regression <= 0.1  # 0.43 and 0.2 if the runs' own errors did not count


@pytest.mark.parametrize("steps", [300, 10_000])
def test_on_a_quiet_machine_short_runs_are_judged_as_usual(steps):
    random = np.random.default_rng(2)
    kind = {"is_busy": False, "steps": steps, "blessed_runs": 8, "count": 20}
    assert short_runs.judge_kind(random, effect=0.0, **kind).refused <= 0.05
    assert short_runs.judge_kind(random, effect=0.1, **kind).regression >= 0.9
