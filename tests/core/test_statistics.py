"""Medians and intervals: right where the answer is known, and covering as often as they say."""

import tracemalloc

import numpy as np
import pytest

from tfx_perf.core import statistics


def interval(low, value, high, count):
    return statistics.Interval(value=value, low=low, high=high, sample_count=count)


def test_few_samples_give_their_range():
    assert statistics.median_interval([3.0]) == interval(3.0, 3.0, 3.0, 1)
    assert statistics.median_interval([1.0, 2.0]) == interval(1, 1.5, 2, 2)


@pytest.mark.parametrize("count", range(1, 12))
def test_an_interval_is_called_what_it_is(count):
    samples = np.random.default_rng(count).lognormal(size=count)
    found = statistics.median_interval(samples)
    is_range = (found.low, found.high) == (samples.min(), samples.max())
    range_covers = 1 - 2.0 ** (1 - count)
    assert ("95%" in found.name) == (range_covers > 0.95)
    if "95%" in found.name:
        assert found.spread == f"95% interval {found.low:.3g} to {found.high:.3g}"
    else:
        assert is_range
        assert found.name == (f"range of {count} rounds" if count > 1 else "one round")
        assert found.spread.startswith(found.name)
    assert ("to" in found.spread) == (count > 1)


def test_the_same_samples_give_the_same_interval():
    samples = np.random.default_rng(0).normal(size=30)
    assert statistics.median_interval(samples) == statistics.median_interval(samples)


def test_the_interval_covers_the_true_median_about_as_often_as_it_says():
    random = np.random.default_rng(7)
    hits = 0
    for _ in range(200):
        interval = statistics.median_interval(random.lognormal(size=15))  # true median: 1
        hits += interval.low <= 1.0 <= interval.high
    assert 0.88 <= hits / 200 <= 1.0


def test_many_samples_have_the_interval_of_the_bootstrap(monkeypatch):
    samples = np.random.default_rng(3).lognormal(size=3001)
    found = statistics.median_interval(samples)
    monkeypatch.setattr(statistics, "_MOST_RESAMPLED", len(samples))
    resampled = statistics.median_interval(samples)
    assert found.value == resampled.value
    bounds = [(own.low, own.high) for own in (found, resampled)]
    assert bounds[0] == pytest.approx(bounds[1], abs=0.1 * (found.high - found.low))


def test_a_million_samples_take_little_memory():
    samples = np.random.default_rng(3).lognormal(size=10**6)
    tracemalloc.start()
    interval = statistics.median_interval(samples)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert interval.low <= 1.0 <= interval.high
    assert peak_bytes < 10 * samples.nbytes  # resampled they would take two thousand times that


def test_a_disturbance_of_both_cancels_in_the_ratio():
    random = np.random.default_rng(1)
    noise = random.uniform(1, 10, size=12)
    interval = statistics.ratio_interval(3.0 * noise, noise)
    assert (interval.low, interval.value, interval.high) == pytest.approx((3, 3, 3))


def test_samples_that_cannot_be_summarized_are_refused():
    with pytest.raises(ValueError, match="at least one sample"):
        statistics.median_interval([])
    with pytest.raises(ValueError, match="Received: 1 and 2"):
        statistics.ratio_interval([1.0], [1.0, 2.0])


def test_a_ratio_may_be_turned_round():
    turned = statistics.Interval(value=0.4, low=0.25, high=0.5).inverse()
    assert (turned.value, turned.low, turned.high) == (2.5, 2.0, 4.0)


def test_an_interval_is_shown_short():
    assert str(statistics.Interval(value=1.23456, low=1.0, high=2.0)) == "1.235 [1, 2]"


@pytest.mark.parametrize("hold", [1, 50])
def test_the_errors_of_samples_in_a_row_are_those_that_they_have(hold):
    """Also if consecutive samples are disturbed."""
    random = np.random.default_rng(4)
    means, medians, errors = [], [], []
    for _ in range(200):
        level = np.repeat(random.normal(size=1000 // hold), hold)
        samples = 10 + level + 0.5 * random.normal(size=1000)
        means.append(np.mean(samples))
        medians.append(np.median(samples))
        errors.append(
            (statistics.mean_error_ratio(samples), statistics.median_error_ratio(samples))
        )
    found = np.mean(errors, axis=0)
    # The largest of several estimates is somewhat too large.
    assert 0.95 < found[0] / (np.std(means) / 10) < 1.6
    assert 0.8 < found[1] / (np.std(medians) / 10) < 1.6


def test_a_stall_moves_the_mean_and_not_the_median():
    samples = np.random.default_rng(5).normal(1, 0.05, size=280)
    samples[100:135] = 50.0
    assert statistics.mean_error_ratio(samples) > 0.5
    assert statistics.median_error_ratio(samples) < 0.05


@pytest.mark.parametrize("ratio", [statistics.mean_error_ratio, statistics.median_error_ratio])
def test_too_few_samples_have_no_error(ratio):
    assert ratio([]) is None
    assert ratio([1.0]) is None
    assert ratio([1.0, 2.0]) > 0
    assert ratio([0.0, 0.0]) is None
