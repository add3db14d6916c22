"""MemoryGrowth: whether a training's memory keeps growing.

Memory that is taken once (caches, arenas, buffers of tf.data) levels off; a leak keeps growing. So
the beginning does not count, and the rest is cut into blocks whose minima count: an evaluation or a
checkpoint is no growth. For a leak, their trend (Mann, "Nonparametric tests against trend",
Econometrica 13, 1945; slope after Sen, "Estimates of the regression coefficient based on Kendall's
tau", JASA 63, 1968) must not be chance, must be large enough to matter, and must not level off.
"""

import numpy as np
from scipy import stats

from tfx_perf.core import records, statistics
from tfx_perf.core.statistics import Samples

_SETTLING_SHARE = 1 / 3
_BLOCKS, _FEWEST_BLOCKS = 10, 8  # some may be without a sample
_FEWEST_SECONDS = 10.0  # seconds that the counted part must last
_LEVEL = 0.01
# Share of the memory at the beginning of the counted part; allocators may cause less growth.
_SMALLEST_SHARE = 0.02
# The slope of the second half over that of the first: 1 for a leak, 0.6 for a logarithm.
_STEADY = 0.75


class MemoryGrowth(records.Record):
    """How fast memory grew after the start (Sen's slope, 95% interval), and if it is a leak."""

    bytes_per_step: statistics.Interval
    step_count: float
    seconds: float
    is_leak: bool


def growth_of(seconds: Samples, steps: Samples, memory_bytes: Samples) -> MemoryGrowth | None:
    """Returns how memory grew per step; None if the training was too short to tell."""
    done, sizes = np.asarray(steps, dtype=float), np.asarray(memory_bytes, dtype=float)
    if not done.size:
        return None
    begin = done[0] + _SETTLING_SHARE * (done[-1] - done[0])
    edges = np.linspace(begin, done[-1], _BLOCKS + 1)
    places = np.searchsorted(edges[1:-1], done, side="right")
    counts = done >= begin
    known = np.unique(places[counts])
    window_seconds = float(np.ptp(np.asarray(seconds, dtype=float)[counts]))
    if window_seconds < _FEWEST_SECONDS or len(known) < _FEWEST_BLOCKS:
        return None
    least = np.array([sizes[(places == index) & counts].min() for index in known])
    middles = ((edges[:-1] + edges[1:]) / 2)[known]
    slope, _, low, high = stats.theilslopes(least, middles)
    chance = stats.kendalltau(middles, least, alternative="greater").pvalue
    first, second = (
        stats.theilslopes(least[half], middles[half])[0]
        for half in (known < _BLOCKS // 2, known >= _BLOCKS // 2)
    )
    is_leak = (
        chance <= _LEVEL
        and low * (done[-1] - begin) > _SMALLEST_SHARE * least[0]
        and second >= _STEADY * first
    )
    return MemoryGrowth(
        bytes_per_step=statistics.Interval(value=slope, low=low, high=high),
        step_count=done[-1] - begin,
        seconds=window_seconds,
        is_leak=bool(is_leak),
    )
