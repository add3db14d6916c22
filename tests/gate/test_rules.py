"""The two kinds of rules, at and around their bounds, in both directions."""

import math

import numpy as np
import pytest

from tfx_perf.config import Limit
from tfx_perf.gate import rules
from tfx_perf.gate.outcome import Verdict

SLOW = "step_time_seconds"  # lower is better
FAST = "examples_per_second"  # higher is better


@pytest.mark.parametrize(
    ("value", "limit", "verdict"),
    [
        (1.0, Limit(max=1.0), Verdict.PASS),
        (1.0000001, Limit(max=1.0), Verdict.LIMIT),
        (1.0, Limit(min=1.0), Verdict.PASS),
        (0.9999999, Limit(min=1.0), Verdict.LIMIT),
        (1.5, Limit(min=1.0, max=2.0), Verdict.PASS),
        (None, Limit(max=1.0), Verdict.INVALID),
    ],
)
def test_limits_are_inclusive_and_need_a_value(value, limit, verdict):
    outcome = rules.check_limit(SLOW, value, limit)
    assert outcome.verdict is verdict
    assert outcome.refuses is (verdict is not Verdict.PASS)


@pytest.mark.parametrize(
    ("metric", "value", "verdict"),
    [
        (SLOW, 5.0, Verdict.PASS),  # exactly the margin of 25 % over 4
        (SLOW, 5.001, Verdict.REGRESSION),
        (SLOW, 0.1, Verdict.PASS),  # better by any amount
        (FAST, 3.0, Verdict.PASS),
        (FAST, 2.999, Verdict.REGRESSION),
        (FAST, 400.0, Verdict.PASS),
    ],
)
@pytest.mark.parametrize("baseline", [[4.0], [3.0, 5.0]])
def test_up_to_two_runs_the_margin_decides(metric, value, verdict, baseline):
    outcome = rules.check_change(metric, value, baseline=baseline, margin=0.25)
    assert outcome.verdict is verdict
    assert outcome.baseline == 4.0
    assert outcome.change == pytest.approx((value - 4.0) / 4.0)


def test_the_prediction_bound_is_the_textbook_one():
    # n = 5, mean 10, sd 1.5811; t(.95, 4) = 2.1318: 10 + 2.1318 * sqrt(1.2) * 1.5811
    assert rules.prediction_bound([8, 9, 10, 11, 12]) == pytest.approx(13.6925, abs=1e-3)


def test_the_prediction_bound_covers_as_often_as_it_says():
    draws = np.random.default_rng(0).normal(size=(4000, 6))
    covered = [row[-1] <= rules.prediction_bound(row[:-1]) for row in draws]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.012)


@pytest.mark.parametrize("sign", [1, -1])
def test_from_three_runs_on_noise_widens_what_is_allowed(sign):
    metric = SLOW if sign > 0 else FAST
    noisy = [8.0, 9.0, 10.0, 11.0, 12.0]
    bound = 10 + sign * 3.6925
    inside = rules.check_change(metric, bound - sign * 0.01, baseline=noisy, margin=0.1)
    outside = rules.check_change(metric, bound + sign * 0.01, baseline=noisy, margin=0.1)
    assert inside.verdict is Verdict.PASS  # 37 % worse, but the runs differ as much
    assert "spread" in inside.reason
    assert outside.verdict is Verdict.REGRESSION
    assert (outside.highest if sign > 0 else outside.lowest) == pytest.approx(bound, abs=1e-3)


def test_a_significant_change_within_the_margin_passes():
    quiet = [10.0, 10.01, 9.99, 10.0, 10.005]
    outcome = rules.check_change(SLOW, 10.9, baseline=quiet, margin=0.1)
    assert rules.prediction_bound(quiet) < 10.9
    assert outcome.verdict is Verdict.PASS


def test_without_spread_the_margin_alone_decides():
    same = [100.0] * 8
    assert rules.prediction_bound(same) == -math.inf
    memory = "peak_memory_bytes"
    assert not rules.check_change(memory, 125.0, baseline=same, margin=0.25).refuses
    assert rules.check_change(memory, 126.0, baseline=same, margin=0.25).refuses


def test_one_outlier_in_the_baseline_does_not_move_it():
    outcome = rules.check_change(SLOW, 1.0, baseline=[1.0, 1.0, 50.0], margin=0.1)
    assert outcome.baseline == 1.0


def test_a_baseline_of_zero_has_no_ratio_but_still_a_direction():
    outcome = rules.check_change("input_wait_ratio", 0.01, baseline=[0.0], margin=0.5)
    assert outcome.verdict is Verdict.REGRESSION
    assert outcome.change is None
    assert not rules.check_change("input_wait_ratio", 0.0, baseline=[0.0], margin=0.5).refuses


def test_a_negative_loss_gets_worse_upwards():
    assert not rules.check_change("train_loss", -7.5, baseline=[-10.0], margin=0.25).refuses
    assert rules.check_change("train_loss", -7.4, baseline=[-10.0], margin=0.25).refuses


def test_without_a_baseline_a_change_is_not_checked():
    outcome = rules.check_change(SLOW, 1.0, baseline=[], margin=0.1)
    assert outcome.verdict is Verdict.NOT_CHECKED
    assert not outcome.refuses
    assert not outcome.checked


@pytest.mark.parametrize("baseline", [[], [1.0]])
def test_a_missing_figure_refuses_with_and_without_a_baseline(baseline):
    outcome = rules.check_change(SLOW, None, baseline=baseline, margin=0.1)
    assert outcome.verdict is Verdict.INVALID
    assert outcome.refuses
