"""Growth: what is a leak and what is not."""

import numpy as np
import pytest

from tfx_perf.memory.growth import growth_of

MIB = 2**20
START = 1000 * MIB


def judged(curve, *, seconds=120.0, noise=0.0, seed=0):
    """Returns the growth of START plus `curve` (of times from 0 to 1), sampled 5 times a second.

    Ten steps are done each second.
    """
    times = np.arange(0, seconds, 0.2)
    scatter = np.random.default_rng(seed).normal(scale=noise, size=times.size) if noise else 0
    return growth_of(times, 10 * times, START + curve(times / seconds) + scatter)


def test_steady_growth_is_a_leak():
    found = judged(lambda share: 120 * MIB * share, noise=4 * MIB)
    assert found.is_leak
    rate = found.bytes_per_step
    assert rate.low < MIB / 10 < rate.high
    assert rate.value == pytest.approx(MIB / 10, rel=0.1)
    assert found.seconds == pytest.approx(80, abs=1)
    assert found.step_count == pytest.approx(800, abs=10)


def test_a_leak_is_one_though_the_machine_becomes_slower():
    times = np.arange(0, 120, 0.2)
    steps = 100 * np.log1p(times)
    assert growth_of(times, steps, START + MIB * steps).is_leak


def test_a_leak_below_a_sawtooth_is_found():
    def teeth(share):
        return 100 * MIB * ((share * 37) % 1)

    assert not judged(teeth).is_leak
    assert judged(lambda share: teeth(share) + 120 * MIB * share).is_leak


@pytest.mark.parametrize(
    "curve",
    [
        lambda share: 0 * share,
        lambda share: 400 * MIB * (share > 0.1),  # a cache that was filled
        lambda share: 400 * MIB * (share > 0.7),  # a second one, later
        lambda share: 400 * MIB * np.minimum(share / 0.5, 1),  # and one that took its time
        lambda share: 200 * MIB * (1 - np.exp(-5 * share)),
        lambda share: 100 * MIB * np.log1p(50 * share),
        lambda share: -200 * MIB * share,
        lambda share: 10 * MIB * share,  # 0.7% in what counts
        lambda share: 300 * MIB * ((share > 0.5) & (share < 0.6)),  # an evaluation
    ],
)
def test_growth_that_levels_off_is_none(curve):
    assert not judged(curve, noise=2 * MIB).is_leak


def test_noise_is_none():
    for seed in range(200):
        assert not judged(lambda share: 0 * share, noise=50 * MIB, seed=seed).is_leak


@pytest.mark.parametrize(("gap", "is_leak"), [(0.1, True), (0.3, None)])
def test_some_time_may_be_without_samples(gap, is_leak):
    times = np.arange(0, 120, 0.2)
    times = times[(times < 60) | (times > 60 + gap * 120)]
    found = growth_of(times, times, START + MIB * times)
    assert (found and found.is_leak) is is_leak


def test_a_short_training_tells_nothing():
    assert judged(lambda share: 500 * MIB * share, seconds=10) is None
    assert growth_of([], [], []) is None
    assert growth_of([0.0, 100.0], [0.0, 9.0], [START, 2 * START]) is None  # next to no samples
