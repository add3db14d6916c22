"""The straight line and when it may be drawn."""

import pytest

from tfx_perf.memory import prediction
from tfx_perf.memory.peak import StepPeak

pytestmark = pytest.mark.each_choice


def test_line_and_largest_batch():
    line = prediction.predict({10: StepPeak((1100,)), 20: StepPeak((1150, 1200))})
    assert line.bytes_per_example == pytest.approx(10)
    assert line.fixed_bytes == pytest.approx(1000)
    assert line.deviation_ratio == pytest.approx(0, abs=1e-9)
    assert line.largest_batch_size(1509) == 50
    assert line.largest_batch_size(900) == 0


def test_deviation_is_that_of_the_worst_point():
    line = prediction.predict({1: StepPeak((100,)), 2: StepPeak((260,)), 3: StepPeak((300,))})
    assert line.deviation_ratio == pytest.approx(20 / 100)


@pytest.mark.parametrize(
    ("small", "large", "stands_out"),
    [
        ((1000,), (1200,), True),
        ((1000,), (1040,), False),  # within the allocator's rounding
        ((800, 1000), (1200,), False),  # within what the rounds differ by
        ((1000,), (900,), False),
    ],
)
def test_growth_stands_out(small, large, stands_out):
    peaks = {8: StepPeak(small), 16: StepPeak(large)}
    assert prediction.growth_stands_out(peaks) is stands_out
