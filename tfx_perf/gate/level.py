"""The level that a figure has now: its runs since the last change of level.

An improvement, or a slowdown that a person has blessed, is no noise. Runs from before it would
make the mean one that no run has ever had, and the noise as large as the change.
"""

from collections.abc import Sequence

import numpy as np

# A level is another one if it is so many standard deviations of a run away. A single run shows
# that only where it cannot be luck.
_DEVIATIONS, _DEVIATIONS_OF_ONE = 8.0, 15.0
# Median of the absolute difference of two normal samples, in standard deviations.
MEDIAN_DIFFERENCE = 0.9539


def latest(figures: Sequence[float], *, noise: float) -> Sequence[float]:
    """Returns the figures since the last change of level; all, if there was none.

    Args:
        figures: one a run, oldest first.
        noise: the standard deviation of a run to expect at least, in the figure's unit.
    """
    while True:
        since = _last_change(np.asarray(figures, np.float64), noise=noise)
        if not since:
            return figures
        figures = figures[since:]


def spread(figures: Sequence[float], *, noise: float) -> float:
    """Returns the standard deviation from one run to the next, which a change of level spares.

    Args:
        figures: one a run, oldest first.
        noise: what it is at least.
    """
    if len(figures) < 2:
        return noise
    return max(noise, float(np.median(np.abs(np.diff(figures)))) / MEDIAN_DIFFERENCE)


def _last_change(figures: np.ndarray, *, noise: float) -> int:
    """Returns where the figures are best cut in two levels; 0 where they are one."""
    if len(figures) < 2:
        return 0
    # Least absolute deviations: one run that is far off is no level.
    halves = [(figures[:cut], figures[cut:]) for cut in range(1, len(figures))]
    costs = [sum(np.sum(np.abs(half - np.median(half))) for half in pair) for pair in halves]
    before, since = halves[int(np.argmin(costs))]
    steps = np.concatenate([np.abs(np.diff(half)) for half in (before, since)])
    within = float(np.median(steps)) / MEDIAN_DIFFERENCE if len(steps) else 0.0
    needed = _DEVIATIONS if len(since) > 1 else _DEVIATIONS_OF_ONE
    is_another = abs(np.median(before) - np.median(since)) > needed * max(noise, within)
    return len(before) if is_another else 0
