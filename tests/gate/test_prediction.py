"""What is expected of a further run, from runs, prior and host; and Holm's levels."""

import numpy as np
import pytest
from gate_runs import ledger_of, only, run

from tfx_perf.gate import holm_bonferroni
from tfx_perf.gate.prediction import PRIOR_DEGREES, PredictiveDistribution, host_factor, predict
from tfx_perf.gate.verdict import evaluate


def test_without_a_prior_it_is_the_textbook_interval():
    # n = 5, mean 10, sd 1.5811; t(.95, 4) = 2.1318: 2.1318 * sqrt(1.2) * 1.5811
    found = PredictiveDistribution(centre=10, spread=1.5811, degrees=4, count=5)
    assert found.half_width(0.05) == pytest.approx(3.6925, abs=1e-3)
    assert found.p_value(3.6925) == pytest.approx(0.05, abs=1e-4)


def test_a_single_run_has_the_prior_and_many_runs_have_their_own_spread():
    one = predict([10.0], prior=0.5)
    assert (one.spread, one.degrees, one.centre) == (0.5, PRIOR_DEGREES, 10.0)
    samples = np.random.default_rng(0).normal(10, 2, size=400)
    many = predict(samples, prior=0.01)
    assert many.spread == pytest.approx(np.std(samples, ddof=1), rel=0.01)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_it_covers_as_often_as_it_says_where_the_prior_is_drawn_as_assumed(count):
    generator = np.random.default_rng(count)
    trials, above = 4000, 0
    for _ in range(trials):
        sd = np.sqrt(PRIOR_DEGREES / generator.chisquare(PRIOR_DEGREES))
        draws = generator.normal(0, sd, size=count + 1)
        found = predict(draws[:-1], prior=1.0)
        above += draws[-1] > found.centre + found.half_width(0.05)
    assert above / trials == pytest.approx(0.05, abs=0.012)


def test_without_any_spread_only_equal_is_expected():
    found = predict([0.0, 0.0], prior=0.0)
    assert (found.p_value(1e-9), found.p_value(0.0), found.half_width(0.01)) == (0.0, 1.0, 0.0)


def test_what_is_detectable_is_detected_four_times_of_five():
    found = PredictiveDistribution(centre=100, spread=1.0, degrees=40, count=8)
    threshold = found.half_width(0.01)
    draws = np.random.default_rng(0).normal(found.detectable(threshold), found.error(), size=20000)
    assert np.mean(draws > threshold) == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize("factor", [1.0, 3.0])
@pytest.mark.parametrize("count", [2, 4, 8, 40])
def test_the_host_shows_in_all_metrics_together(factor, count):
    generator = np.random.default_rng(3)
    found = [
        host_factor([(generator.normal(100, 0.5 * factor, size=count), 0.5) for _ in range(9)])
        for _ in range(100)
    ]
    # As sure of it as the runs are many: the prior counts as four degrees of freedom.
    freedom = count - 1
    expected = np.sqrt((PRIOR_DEGREES + freedom * factor**2) / (PRIOR_DEGREES + freedom))
    assert np.median(found) == pytest.approx(expected, rel=0.12)


def test_two_runs_that_lie_apart_do_not_lock_the_gate():
    """Where none would be blessed any more, nobody would ever learn that the machine is quiet."""
    ledger, settings = ledger_of("step_time_seconds", [1.0, 1.06]), only(
        step_time_seconds={"margin": 0.03}
    )
    assert evaluate(run("new", step_time_seconds=1.02), ledger=ledger, settings=settings).blessed


def test_one_noisy_metric_is_not_the_host_and_a_quiet_host_is_as_expected():
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
    levels = holm_bonferroni.levels(p_values, rate=0.05)
    assert [p <= level for p, level in zip(p_values, levels, strict=True)] == rejected
