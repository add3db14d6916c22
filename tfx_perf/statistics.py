"""Robust summaries of noisy timings: medians and bootstrap intervals, always seeded.

Percentile bootstrap of the median: Efron and Tibshirani, "An Introduction to the
Bootstrap" (1993), chapter 13. Computed by `scipy.stats.bootstrap`.
"""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from tfx_perf import records

_SEED = 20260101
_RESAMPLES = 2000


class Interval(records.Record):
    """A point estimate with a confidence interval, all in the samples' unit."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def median_interval(samples: Sequence[float], *, confidence: float = 0.95) -> Interval:
    """Returns the median of `samples` with its bootstrap interval.

    With fewer than three samples the interval is their range.

    Raises:
        ValueError: `samples` is empty.
    """
    values = np.asarray(samples, dtype=float)
    if not values.size:
        raise ValueError("Expected at least one sample. Received: samples=[].")
    if values.size < 3 or np.ptp(values) == 0:
        return Interval(value=float(np.median(values)), low=values.min(), high=values.max())
    result = stats.bootstrap(
        (values,), np.median, confidence_level=confidence, method="percentile",
        n_resamples=_RESAMPLES, vectorized=True, random_state=np.random.default_rng(_SEED),
    )
    low, high = result.confidence_interval
    return Interval(value=float(np.median(values)), low=float(low), high=float(high))


def ratio_interval(
    numerators: Sequence[float], denominators: Sequence[float], *, confidence: float = 0.95
) -> Interval:
    """Returns the median of paired ratios with its bootstrap interval.

    The i-th samples of both must have been taken side by side (A B A B ...), so that a
    disturbance of the machine strikes both and cancels in their ratio.

    Raises:
        ValueError: the lengths differ or are zero.
    """
    if len(numerators) != len(denominators):
        raise ValueError(
            "Expected as many numerators as denominators. "
            f"Received: {len(numerators)} and {len(denominators)}."
        )
    ratios = np.asarray(numerators, dtype=float) / np.asarray(denominators, dtype=float)
    return median_interval(ratios.tolist(), confidence=confidence)
