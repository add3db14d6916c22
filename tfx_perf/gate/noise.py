"""How much figures vary from run to run: by a prior at first, and then by the runs themselves.

The unit is the run, never the step: steps of one run share its disturbances.

A few runs say little about their own spread: two have one degree of freedom, and the 95%
quantile of t is then 6.3. The prior counts as `PRIOR_DEGREES` further degrees of freedom
(scaled inverse chi-squared prior of the variance, Gelman et al., "Bayesian Data Analysis",
3rd ed., section 3.3), so that one formula works from the first run on, and the runs outweigh
the prior as their number grows. The prior itself follows the host: see `host_factor`.

A run's figure also has its own error, which its steps show: for a short training it is larger than
all differences between runs. The variance beyond the own errors is that between runs (the moment
estimator of random effects: Cochran, "The combination of estimates from different experiments",
Biometrics 10, 1954), and each run is weighted in the mean by how well its figure is known.
"""

import bisect
import dataclasses
import enum
import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import special

from tfx_perf.core import metrics
from tfx_perf.gate.run import Run


class Kind(enum.Enum):
    """The kind of disturbance of a figure: causes of variation in times do not make losses vary."""

    TIME = enum.auto()
    MEMORY = enum.auto()
    QUALITY = enum.auto()


_KINDS = {"bytes": Kind.MEMORY, "loss": Kind.QUALITY, "score": Kind.QUALITY}

# Relative run-to-run standard deviations, by kind of figure; see docs/gate.md.
_STEADY = 0.01
_ONE_OFF = 0.05
# The standard deviation of an example's loss is about its mean: the mean of a thousand examples,
# other ones each time, varies by 3%. Shares of examples, such as accuracy, vary less.
_ON_OTHER_EXAMPLES = 0.03
_BY_UNIT = {"loss": _ON_OTHER_EXAMPLES, "times": _ONE_OFF}
# Times of things that are done once and not averaged over many steps, tails, and waits.
_ONCE = {
    "setup_time_seconds", "time_to_first_step_seconds", "compile_time_seconds",
    "fit_time_seconds", "garbage_collection_seconds", "checkpoint_time_seconds",
    "input_preparation_seconds", "step_time_p90_seconds", "step_time_p99_seconds",
    "trace_time_seconds", "first_batch_seconds", "input_wait_ratio", "compile_share_ratio",
    "communication_share_ratio", "load_imbalance_ratio",
}  # fmt: skip

PRIOR_DEGREES = 4.0
POWER_QUANTILE = float(special.ndtri(0.8))  # this far above a limit, four of five exceed it
# A level is a new one if it is this many standard deviations of a run away. A single run needs
# more, so that it cannot be luck.
_DEVIATIONS, _DEVIATIONS_OF_ONE = 8.0, 15.0
# Median of the absolute difference of two normal samples, in standard deviations.
_MEDIAN_DIFFERENCE = 0.9539


def prior(key: str) -> float:
    """Returns the expected relative standard deviation of a metric."""
    return _ONE_OFF if key in _ONCE else _BY_UNIT.get(metrics.lookup(key).unit, _STEADY)


def kind(key: str) -> Kind:
    """Returns the kind of disturbance of a metric; shares and rates are made of times."""
    return _KINDS.get(metrics.lookup(key).unit, Kind.TIME)


@dataclasses.dataclass(frozen=True)
class OwnErrors:
    """The standard errors of one figure of some runs, as shares of it; 0 if unknown.

    The scatter of a run's steps from one part of it to the next tells how far their median and mean
    may be off because the steps are few.

    Attributes:
        candidate: error of the run to judge; at least the usual one, because a run cannot know that
            it happened to have a calm minute.
        blessed: errors of the blessed runs, by their ids.
        usual: errors of usual runs of as many steps, by the blessed runs' ids. They set the runs'
            weights: by their own errors, runs in a calm minute would outweigh all others.
    """

    candidate: float = 0.0
    blessed: Mapping[str, float] = dataclasses.field(default_factory=dict)
    usual: Mapping[str, float] = dataclasses.field(default_factory=dict)


def own_errors(key: str, *, candidate: Run, blessed: Sequence[Run]) -> OwnErrors:
    """Returns the errors of a figure of the candidate and of the blessed runs."""
    known_by = metrics.ERROR_RATIOS.get(key)
    if known_by is None:
        return OwnErrors()
    known = {run.run_id: run.figure(known_by) or 0.0 for run in blessed}
    # Errors fall with the square root of the steps.
    of_a_step = [known[run.run_id] * math.sqrt(_steps(run)) for run in blessed]
    usual = statistics.median([error for error in of_a_step if error] or [0.0])
    return OwnErrors(
        candidate=max(candidate.figure(known_by) or 0.0, usual / math.sqrt(_steps(candidate))),
        blessed=known,
        usual={run.run_id: usual / math.sqrt(_steps(run)) for run in blessed},
    )


def _steps(run: Run) -> float:
    return max(1.0, run.figure("train_step_count") or 1.0)


def level_begin(figures: Sequence[float], *, noise: float) -> int:
    """Returns the index of the first figure since the last change of level beyond the noise.

    Runs from before it would give a mean that no run has ever had, and noise as large as the
    change. `noise` is the smallest expected standard deviation of a run, in the figure's unit.
    """
    begin = 0
    while cut := _last_change(np.asarray(figures[begin:], np.float64), noise=noise):
        begin += cut
    return begin


def level_spread(figures: Sequence[float], *, noise: float) -> float:
    """Returns the standard deviation from run to run, at least `noise`, ignoring level changes."""
    return max(noise, float(np.median(np.abs(np.diff(figures)))) / _MEDIAN_DIFFERENCE)


def _last_change(figures: np.ndarray, *, noise: float) -> int:
    """Returns the index that best splits the figures into two levels; 0 if there is only one."""
    if len(figures) < 2:
        return 0
    # Least absolute deviations: a single outlier is no level.
    costs = _deviations(figures)[:-1] + _deviations(figures[::-1])[-2::-1]
    before, since = np.split(figures, [int(np.argmin(costs)) + 1])
    steps = np.concatenate([np.abs(np.diff(half)) for half in (before, since)])
    within = float(np.median(steps)) / _MEDIAN_DIFFERENCE if len(steps) else 0.0
    needed = _DEVIATIONS if len(since) > 1 else _DEVIATIONS_OF_ONE
    is_another = abs(np.median(before) - np.median(since)) > needed * max(noise, within)
    return len(before) if is_another else 0


def _deviations(figures: np.ndarray) -> np.ndarray:
    """Returns for each beginning of the figures the sum of its deviations from its median."""
    ordered: list[float] = []
    sums = []
    for figure in figures.tolist():
        bisect.insort(ordered, figure)
        half = len(ordered) // 2
        sums.append(sum(ordered[len(ordered) - half :]) - sum(ordered[:half]))
    return np.array(sums)


@dataclasses.dataclass(frozen=True)
class PredictiveDistribution:
    """The distribution of a further run of the same kind: Student's t around `center`.

    `center + t * sqrt(spread**2 * (1 + 1/count) + own_error**2 + center_error**2)`: Hahn and
    Meeker, "Statistical Intervals" (1991), chapter 4, with the pooled spread and the errors of the
    figures themselves.

    Attributes:
        center: mean of the runs, weighted where their figures are not known equally well.
        spread: standard deviation from run to run beyond the figures' own errors, in their unit.
        degrees: degrees of freedom of the spread.
        count: number of runs; with weights, the number of equal runs that are worth the same.
        own_error: standard error of the further run's figure, where the run is so short that its
            steps do not average out; in the figure's unit.
        usual_error: standard error of the runs' figures, root mean square.
        center_error: standard error of the mean, from the runs' own errors.
    """

    center: float
    spread: float
    degrees: float
    count: float
    own_error: float = 0.0
    usual_error: float = 0.0
    center_error: float = 0.0

    @property
    def noise(self) -> float:
        """The standard deviation of the further run's figure."""
        return math.hypot(self.spread, self.own_error)

    @property
    def spread_of_difference(self) -> float:
        """The part of `error` that comes from the spread alone."""
        return self.spread * math.sqrt(1 + 1 / self.count)

    @property
    def error(self) -> float:
        """The standard deviation of the difference between a further run and the mean."""
        return math.hypot(self.spread_of_difference, self.own_error, self.center_error)

    def quantile(self, level: float) -> float:
        """Returns how many standard deviations are exceeded with probability `level`, one-sided."""
        return float(special.stdtrit(self.degrees, 1 - level))

    def half_width(self, level: float) -> float:
        """Returns the excess over the mean that occurs with probability `level`, one-sided."""
        return self.quantile(level) * self.error

    def p_value(self, excess: float) -> float:
        """Returns the probability that a further run is at least `excess` above the center."""
        if not self.error:
            return 0.0 if excess > 0 else 1.0
        return float(special.stdtr(self.degrees, -excess / self.error))


def predict(
    samples: Sequence[float],
    *,
    prior: float,
    errors: Sequence[float] = (),
    usual_errors: Sequence[float] = (),
    own_error: float = 0.0,
) -> PredictiveDistribution:
    """Returns what the runs and the prior say about a further run.

    Args:
        samples: one figure per run, at least one.
        prior: expected standard deviation of one run, in the figure's unit.
        errors: the standard errors of the samples, in the same unit; empty: 0.
        usual_errors: the expected ones, by which samples are weighted; empty: equal weights.
        own_error: the standard error of the further run's figure.
    """
    freedom = len(samples) - 1
    degrees = PRIOR_DEGREES + freedom
    variances = np.square(errors) if len(errors) else np.zeros(len(samples))
    deviations = np.asarray(samples) - np.mean(samples)
    between = max(0.0, float(np.sum(deviations**2) - freedom * np.mean(variances)))
    variance = (PRIOR_DEGREES * prior**2 + between) / degrees
    weights = np.ones(len(samples))
    if variance and len(usual_errors):
        weights = variance / (variance + np.square(usual_errors))
    weights /= np.sum(weights)
    return PredictiveDistribution(
        center=float(weights @ samples),
        spread=math.sqrt(variance),
        degrees=degrees,
        count=1 / float(weights @ weights),
        own_error=own_error,
        usual_error=math.sqrt(float(np.mean(variances))),
        center_error=math.sqrt(float(weights**2 @ variances)),
    )


def host_factor(figures: Sequence[tuple[Sequence[float], float]]) -> float:
    """Returns how many times as much as the priors say the runs of a host vary, at least 1.

    A busy host disturbs every metric of a kind. The square of the factor is the median over the
    metrics of variance over prior variance, each divided by its median under a correct prior; this
    is the empirical prior of Smyth, "Linear models and empirical Bayes methods" (2004), made
    robust. Metrics of a kind are correlated, so they count as one; and two runs that happen to lie
    far apart must not make every further run inconclusive. So a ratio of 1 counts with the prior's
    `PRIOR_DEGREES`, beside the runs' own degrees. `figures` holds, for each metric, one figure per
    run and its prior standard deviation.
    """
    ratios, freedoms = [], []
    for samples, prior_deviation in figures:
        freedom = float(len(samples) - 1)
        if freedom and prior_deviation:
            usual = 2 * special.gammaincinv(freedom / 2, 0.5) / freedom  # median of chi2 / freedom
            ratios.append(float(np.var(samples, ddof=1)) / prior_deviation**2 / usual)
            freedoms.append(freedom)
    if not ratios:
        return 1.0
    ratio, freedom = float(np.median(ratios)), float(np.median(freedoms))
    pooled = (PRIOR_DEGREES + freedom * ratio) / (PRIOR_DEGREES + freedom)
    return math.sqrt(max(1.0, pooled))


def holm_levels(p_values: Sequence[float], *, rate: float) -> list[float]:
    """Returns the level of each test; a test rejects if its p-value is at or below it.

    The probability that any true hypothesis is rejected is then at most `rate`, however the
    tests depend on each other (Holm, "A simple sequentially rejective multiple test procedure",
    Scand. J. Statist. 6, 1979).
    """
    levels = [0.0] * len(p_values)
    left = len(p_values)
    for index in sorted(range(len(p_values)), key=p_values.__getitem__):
        levels[index] = rate / left
        # After the first test that does not reject, the others get its level.
        if p_values[index] <= levels[index] and left > 1:
            left -= 1
    return levels
