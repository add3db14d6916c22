"""A figure against the blessed runs: at and around its bounds, in both directions."""

import pytest
from gate_runs import ledger_of, noisy, only, run

from tfx_perf.gate.outcome import Verdict
from tfx_perf.gate.verdict import evaluate

SLOW = "step_time_seconds"  # lower is better
FAST = "examples_per_second"  # higher is better
MEMORY = "xla_peak_bytes"  # planned, not measured


def judge(key, value, baseline, **rule):
    """Returns the outcome of the change rule."""
    settings = only(**{key: rule})
    ledger = ledger_of(key, baseline)
    record = evaluate(run("new", **{key: value}), ledger=ledger, settings=settings)
    return record.outcomes[0]


@pytest.mark.parametrize(("key", "sign"), [(SLOW, 1), (FAST, -1)])
def test_only_what_is_beyond_margin_and_noise_is_a_regression(key, sign):
    quiet = noisy(8, sd=0.002)
    assert judge(key, 1 + sign * 0.029, quiet, margin=0.03).verdict is Verdict.PASS
    worse = judge(key, 1 + sign * 0.035, quiet, margin=0.03)
    assert worse.verdict is Verdict.REGRESSION
    assert worse.refuses
    assert worse.change == pytest.approx(sign * 0.035, abs=0.003)
    assert worse.change_low < worse.change < worse.change_high
    assert (worse.highest is None, worse.lowest is None) == (sign < 0, sign > 0)
    assert judge(key, 1 - sign * 0.5, quiet, margin=0.03).verdict is Verdict.PASS


@pytest.mark.parametrize(("key", "sign"), [(SLOW, 1), (FAST, -1)])
def test_the_allowed_bound_is_the_bound(key, sign):
    baseline = noisy(8, sd=0.03)
    found = judge(key, 1.0, baseline, margin=0.03, budget=0.5)
    bound = found.highest if sign > 0 else found.lowest
    assert sign * (bound - found.baseline) > 0.04 * found.baseline  # noise, not the margin
    inside = judge(key, bound * (1 - sign * 1e-6), baseline, margin=0.03, budget=0.5)
    outside = judge(key, bound * (1 + sign * 1e-6), baseline, margin=0.03, budget=0.5)
    assert (inside.verdict, outside.verdict) == (Verdict.PASS, Verdict.REGRESSION)
    assert "noise explains" in inside.reason


def test_noise_that_hides_more_than_the_budget_is_inconclusive_not_a_pass():
    loud = noisy(8, sd=0.10)
    found = judge(SLOW, 1.06, loud, margin=0.03)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.refuses
    assert "must be ruled out" in found.reason
    assert judge(SLOW, 1.06, loud, margin=0.03, budget=0.6).verdict is Verdict.PASS
    assert judge(SLOW, 0.7, loud, margin=0.03).verdict is Verdict.PASS  # clearly no worse


def test_no_rate_can_fall_by_more_than_all_of_it():
    found = judge(FAST, 0.9, (0.3, 1.0, 1.7), margin=0.03)
    assert found.verdict is Verdict.INCONCLUSIVE
    assert found.change_low == -1.0
    assert "may be 100.0% worse" in found.reason


def test_a_stall_in_a_short_training_is_no_regression_of_its_mean():
    """Of five calls of 26 ms one took 170 ms."""
    ledger = ledger_of(FAST, noisy(8, sd=0.01))
    stalled = {FAST: 0.45, "step_time_error_ratio": 0.52}
    found = evaluate(run("new", **stalled), ledger=ledger, settings=only(**{FAST: {"margin": 0.1}}))
    assert found.outcomes[0].verdict is Verdict.INCONCLUSIVE
    assert "the training is so short" in found.outcomes[0].reason
    steady = {**stalled, "step_time_error_ratio": 0.01}  # a thousand calls
    found = evaluate(run("new", **steady), ledger=ledger, settings=only(**{FAST: {"margin": 0.1}}))
    assert found.outcomes[0].verdict is Verdict.REGRESSION


def test_a_median_is_judged_as_it_is():
    slow = run("new", **{SLOW: 2.2, "step_time_error_ratio": 0.52})
    ledger = ledger_of(SLOW, noisy(8, sd=0.01))
    found = evaluate(slow, ledger=ledger, settings=only(**{SLOW: {"margin": 0.1}}))
    assert found.outcomes[0].verdict is Verdict.REGRESSION


@pytest.mark.parametrize("count", [1, 2])
def test_with_one_or_two_runs_the_prior_stands_for_the_noise(count):
    baseline = [1.0] * count
    assert judge(SLOW, 1.03, baseline, margin=0.03).verdict is Verdict.PASS
    assert judge(SLOW, 1.11, baseline, margin=0.03).refuses
    # Where runs are known to differ by 10 %, 11 % is nothing.
    rule = {"margin": 0.03, "budget": 1.0, "noise": 0.1}
    assert judge(SLOW, 1.11, baseline, **rule).verdict is Verdict.PASS


def test_eight_equal_runs_do_not_make_a_hair_a_regression():
    assert judge(SLOW, 1.0299, [1.0] * 8, margin=0.03).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("value", "margin", "verdict"),
    [(100.0, 0.0, Verdict.PASS), (101.0, 0.0, Verdict.REGRESSION), (90.0, 0.0, Verdict.PASS),
     (105.0, 0.05, Verdict.PASS), (105.1, 0.05, Verdict.REGRESSION)],
)  # fmt: skip
def test_deterministic_counters_are_compared_exactly_with_the_last_run(value, margin, verdict):
    found = judge(MEMORY, value, [500.0, 100.0], margin=margin, budget=10.0)
    assert found.verdict is verdict
    assert found.baseline == 100.0
    assert found.change_low == found.change_high == found.change


def test_a_small_share_is_relative_to_the_scale():
    share = "input_wait_ratio"
    rule = {"margin": 0.1, "noise": 0.01}
    assert judge(share, 0.004, [0.001] * 8, **rule).verdict is Verdict.REGRESSION
    scaled = judge(share, 0.004, [0.001] * 8, scale=0.2, **rule)
    assert scaled.verdict is Verdict.PASS
    assert scaled.change == pytest.approx(0.015)


def test_a_baseline_of_zero_has_no_ratio_but_still_a_direction():
    found = judge("input_wait_ratio", 0.01, [0.0], margin=0.5)
    assert found.verdict is Verdict.REGRESSION
    assert found.change is None
    assert judge("input_wait_ratio", 0.0, [0.0], margin=0.5).verdict is Verdict.PASS


def test_a_negative_loss_gets_worse_upwards():
    assert judge("train_loss", -9.6, [-10.0] * 8, margin=0.05).verdict is Verdict.PASS
    assert judge("train_loss", -9.4, [-10.0] * 8, margin=0.05).verdict is Verdict.REGRESSION


def test_quality_is_compared_too():
    ledger = ledger_of("step_time_seconds", [1.0])
    entry = ledger.entries[0].model_copy(update={"evaluation": {"auc": 0.9, "other": 1.0}})
    ledger = ledger.model_copy(update={"entries": (entry,)})
    settings = only(step_time_seconds={"margin": 0.1}, **{"evaluation/auc": {"margin": 0.02}})
    for auc, blessed in ((0.89, True), (0.8, False)):
        candidate = run("new", step_time_seconds=0.5, evaluation={"auc": auc})
        assert evaluate(candidate, ledger=ledger, settings=settings).blessed is blessed


def test_the_smallest_detectable_change_shrinks_with_runs_and_grows_with_noise():
    few, many = (judge(SLOW, 1.0, noisy(n, sd=0.01), margin=0.03) for n in (3, 30))
    loud = judge(SLOW, 1.0, noisy(30, sd=0.05), margin=0.03)
    assert many.detectable < few.detectable
    assert many.detectable < loud.detectable
