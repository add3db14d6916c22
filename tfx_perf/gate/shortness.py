"""What short trainings leave open, and how much longer they would have to be.

The median of a few hundred quick steps on a busy machine may be off by half: that such a run seems
slower says nothing of its code. Its owner has to know that it is too short, and not the gate wrong.
"""

import dataclasses

from tfx_perf import records
from tfx_perf.gate.prediction import PredictiveDistribution

# The share of what the noise between runs leaves of the budget that a run's own error may take, so
# that most runs that are no worse can be told from those that are beyond the budget.
_SHARE = 0.5
# What is longer by less is of the same kind.
_LEAST_FACTOR = 2.0


class Shortness(records.Record):
    """How far a comparison is open only because runs are short.

    Attributes:
        factor: how many times as many steps would decide.
        is_of_baseline: whether that takes a longer blessed run, too.
    """

    factor: float
    is_of_baseline: bool


def shortness_of(
    expected: PredictiveDistribution, *, budget: float, level: float
) -> Shortness | None:
    """Returns what short runs leave open; None where longer ones would be inconclusive, too.

    Args:
        expected: where a run that is no worse is to be expected.
        budget: what must be ruled out, in the metric's unit.
        level: one-sided, of ruling it out.
    """
    by_noise, by_own, by_baseline = (
        _alone(expected, part).half_width(level)
        for part in ("spread", "own_error", "centre_error")
    )
    left = budget - by_noise
    if left <= 0 or not (by_own or by_baseline):
        return None
    # Errors fall with the square root of the steps. Beside blessed runs whose own errors are too
    # large, no run is long enough.
    room = (_SHARE * left) ** 2
    is_of_baseline = by_baseline**2 >= room
    if is_of_baseline:
        factor = (by_own**2 + by_baseline**2) / room
    else:
        factor = by_own**2 / (room - by_baseline**2)
    return Shortness(factor=max(_LEAST_FACTOR, factor), is_of_baseline=is_of_baseline)


def _alone(expected: PredictiveDistribution, part: str) -> PredictiveDistribution:
    """Returns the distribution with one part of what the difference varies by."""
    parts = dict.fromkeys(("spread", "own_error", "usual_error", "centre_error"), 0.0)
    return dataclasses.replace(expected, **{**parts, part: getattr(expected, part)})
