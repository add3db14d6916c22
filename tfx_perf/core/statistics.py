"""Robust summaries of noisy timings: medians and their intervals, always the same ones.

For fewer than six samples, the interval is their range. For few, it is the percentile bootstrap of
the median (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13;
`scipy.stats.bootstrap`). For many, where that takes gigabytes, it is from order statistics
(Conover, "Practical Nonparametric Statistics", 3rd edition, section 3.2;
`scipy.stats.quantile_test`). Both agree as the number of samples grows.

A disturbance of one sample usually lasts into the next ones. So standard errors of consecutive
samples come from blocks of them (batch means: Asmussen and Glynn, "Stochastic Simulation", 2007,
section IV.5), as long as the scatter of the blocks requires (blocking: Flyvbjerg and Petersen, J.
Chem. Phys. 91, 1989). That of the median comes from the error of the share of samples below it
(Woodruff, "Confidence intervals for medians", J. Amer. Stat. Assoc. 47, 1952): a stall that fills a
block moves the median of the block, but not that of all samples.
"""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from tfx_perf.core import records

_CONFIDENCE = 0.95
_SEED = 20260101
_RESAMPLES = 2000

Samples = Sequence[float] | np.ndarray
_FEWEST = 6  # samples that a 95% interval of their median needs
# The bootstrap holds all resamples at once: 16 bytes times this times `_RESAMPLES`.
_MOST_RESAMPLED = 1000
# The largest error over these numbers of blocks counts: longer blocks see longer disturbances, but
# fewer blocks estimate their own scatter less well.
_BLOCK_COUNTS = (4, 8, 16, 32)


class Interval(records.Record):
    """A point estimate with a confidence interval, all in the samples' unit.

    `sample_count` is how many samples it comes from; None where that was not recorded.
    """

    value: float
    low: float
    high: float
    sample_count: int | None = None

    def scaled(self, factor: float) -> "Interval":
        """Returns the interval times `factor`, above 0, for another unit."""
        ends = {name: factor * getattr(self, name) for name in ("value", "low", "high")}
        return self.model_copy(update=ends)

    def times(self, other: "Interval") -> "Interval":
        """Returns the product of two ratios that were measured separately, both above 0."""
        ends = {n: getattr(self, n) * getattr(other, n) for n in ("value", "low", "high")}
        return Interval(**ends)

    def inverse(self) -> "Interval":
        """Returns the interval of the inverse ratio; this one must be above 0."""
        ends = {"value": 1 / self.value, "low": 1 / self.high, "high": 1 / self.low}
        return self.model_copy(update=ends)

    @property
    def name(self) -> str:
        """The correct name for the interval, given one sample per round.

        The range of `n` samples covers the median with probability 1 - 2^(1-n). For fewer than six,
        no interval reaches 95%, and the bootstrap's is the range.
        """
        if self.sample_count == 1:
            return "one round"
        if self.sample_count and self.sample_count < _FEWEST:
            return f"range of {self.sample_count} rounds"
        return "95% interval"

    @property
    def spread(self) -> str:
        """The interval with its name, e.g. `95% interval 1.2 to 1.4`."""
        if self.sample_count == 1:
            return self.name
        return f"{self.name} {self.low:.3g} to {self.high:.3g}"

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def median_interval(samples: Samples) -> Interval:
    """Returns the median of `samples` with its interval; for fewer than six, that is their range.

    ValueError: there are none.
    """
    values = np.asarray(samples, dtype=float)
    if not values.size:
        raise ValueError("Expected at least one sample. Received: samples=[].")
    if values.size < _FEWEST or np.ptp(values) == 0:
        low, high = values.min(), values.max()
    elif values.size > _MOST_RESAMPLED:
        low, high = stats.quantile_test(values).confidence_interval(_CONFIDENCE)
    else:
        low, high = stats.bootstrap(
            (values,), np.median, confidence_level=_CONFIDENCE, method="percentile",
            n_resamples=_RESAMPLES, vectorized=True, random_state=np.random.default_rng(_SEED),
        ).confidence_interval
    return Interval(
        value=float(np.median(values)),
        low=float(low),
        high=float(high),
        sample_count=values.size,
    )


def mean_error_ratio(samples: Samples) -> float | None:
    """Returns the standard error of the mean over the mean; None for one sample or a mean of 0.

    Samples must be in the order in which they were taken, all of about the same weight.
    """
    values = np.asarray(samples, dtype=float)
    if values.size < 2 or not values.mean():
        return None
    return _error_of_mean(values) / abs(float(values.mean()))


def median_error_ratio(samples: Samples) -> float | None:
    """Returns the standard error of the median over the median; otherwise as `mean_error_ratio`."""
    values = np.asarray(samples, dtype=float)
    median = float(np.median(values)) if values.size else 0.0
    if values.size < 2 or not median:
        return None
    share = min(0.5, _error_of_mean((values <= median).astype(float)))
    low, high = np.quantile(values, (0.5 - share, 0.5 + share))
    return float(high - low) / 2 / abs(median)


def _error_of_mean(values: np.ndarray) -> float:
    counts = {min(count, values.size) for count in _BLOCK_COUNTS}
    blocks = [[block.mean() for block in np.array_split(values, count)] for count in counts]
    return max(float(stats.sem(means)) for means in blocks)


def ratio_interval(numerators: Samples, denominators: Samples) -> Interval:
    """Returns the median of paired ratios with its interval; ValueError without pairs.

    The i-th samples of both must have been taken side by side (A B A B ...), so that a disturbance
    of the machine hits both and cancels in their ratio.
    """
    if len(numerators) != len(denominators):
        raise ValueError(
            "Expected as many numerators as denominators. "
            f"Received: {len(numerators)} and {len(denominators)}."
        )
    ratios = np.asarray(numerators, dtype=float) / np.asarray(denominators, dtype=float)
    return median_interval(ratios.tolist())
