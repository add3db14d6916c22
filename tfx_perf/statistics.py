"""Robust summaries of noisy timings: medians and their intervals, always the same ones.

Of fewer than six samples: their range. Of few: percentile bootstrap of the median (Efron and
Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13; `scipy.stats.bootstrap`). Of many,
for which that takes gigabytes: order statistics (Conover, "Practical Nonparametric Statistics",
3rd edition, section 3.2; `scipy.stats.quantile_test`). They come to the same as the number of
samples grows.
"""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from tfx_perf import records

_SEED = 20260101
_RESAMPLES = 2000

Samples = Sequence[float] | np.ndarray
_FEWEST = 6  # samples that have an interval of 95 % for their median
# The bootstrap holds all resamples at once: 16 bytes times this times `_RESAMPLES`.
_MOST_RESAMPLED = 1000


class Interval(records.Record):
    """A point estimate with a confidence interval, all in the samples' unit.

    Attributes:
        value: the estimate.
        low: lower end of the interval.
        high: upper end of the interval.
        sample_count: how many samples it comes from; None where that was not recorded.
    """

    value: float
    low: float
    high: float
    sample_count: int | None = None

    def surely_above(self, value: float) -> bool:
        """Whether all of the interval is above a value, as a decision needs it."""
        return self.low > value

    def surely_below(self, value: float) -> bool:
        """Whether all of the interval is below a value."""
        return self.high < value

    def scaled(self, factor: float) -> "Interval":
        """Returns the interval in a unit of which one of these is `factor`, above 0."""
        ends = {name: factor * getattr(self, name) for name in ("value", "low", "high")}
        return self.model_copy(update=ends)

    def times(self, other: "Interval") -> "Interval":
        """Returns the product of two ratios that were measured apart, both above 0."""
        ends = {n: getattr(self, n) * getattr(other, n) for n in ("value", "low", "high")}
        return Interval(**ends)

    def inverse(self) -> "Interval":
        """Returns the interval of the ratio the other way round; this one is above 0."""
        ends = {"value": 1 / self.value, "low": 1 / self.high, "high": 1 / self.low}
        return self.model_copy(update=ends)

    @property
    def name(self) -> str:
        """What may be called so between `low` and `high`, of one sample a round.

        The range of `n` samples covers the median with 1 - 2^(1-n): of fewer than six none of
        their intervals does so with 95 %, and the bootstrap's is the range.
        """
        if self.sample_count == 1:
            return "one round"
        if self.sample_count and self.sample_count < _FEWEST:
            return f"range of {self.sample_count} rounds"
        return "95 % interval"

    @property
    def spread(self) -> str:
        """The interval with its name, e.g. `95 % interval 1.2 to 1.4`."""
        if self.sample_count == 1:
            return self.name
        return f"{self.name} {self.low:.3g} to {self.high:.3g}"

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def median_interval(samples: Samples, *, confidence: float = 0.95) -> Interval:
    """Returns the median of `samples` with its interval.

    With fewer than six samples the interval is their range.

    Raises:
        ValueError: `samples` is empty.
    """
    values = np.asarray(samples, dtype=float)
    if not values.size:
        raise ValueError("Expected at least one sample. Received: samples=[].")
    if values.size < _FEWEST or np.ptp(values) == 0:
        low, high = values.min(), values.max()
    elif values.size > _MOST_RESAMPLED:
        low, high = stats.quantile_test(values).confidence_interval(confidence)
    else:
        low, high = stats.bootstrap(
            (values,), np.median, confidence_level=confidence, method="percentile",
            n_resamples=_RESAMPLES, vectorized=True, random_state=np.random.default_rng(_SEED),
        ).confidence_interval
    return Interval(
        value=float(np.median(values)),
        low=float(low),
        high=float(high),
        sample_count=values.size,
    )


def relative_standard_error(samples: Samples) -> float | None:
    """Returns the standard error of the mean over the mean; None of fewer than two samples."""
    values = np.asarray(samples, dtype=float)
    if values.size < 2 or not values.mean():
        return None
    return float(stats.sem(values) / abs(values.mean()))


def ratio_interval(
    numerators: Samples, denominators: Samples, *, confidence: float = 0.95
) -> Interval:
    """Returns the median of paired ratios with its interval.

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
