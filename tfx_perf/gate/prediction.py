"""Where a further run is to be expected, from a few runs and a prior.

The unit is the run, never the step: steps of one run share its disturbances.

A few runs say little about their own spread: two have one degree of freedom, and the 95 %
quantile of t is then 6.3. The prior counts as `PRIOR_DEGREES` further degrees of freedom
(scaled inverse chi-squared prior of the variance, Gelman et al., "Bayesian Data Analysis",
3rd ed., section 3.3), so that one formula serves from the first run on, and the runs take
over as they become more. The prior itself follows the host: see `host_factor`.

A run's figure has an error of its own, too, which its steps show: of a short training it is larger
than all that differs between runs. What the runs differ by beyond their own errors is between them
(the moment estimator of random effects: Cochran, "The combination of estimates from different
experiments", Biometrics 10, 1954), and each counts for the mean by how well its figure is known.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy import special

PRIOR_DEGREES = 4.0
_POWER = 0.8


@dataclasses.dataclass(frozen=True)
class PredictiveDistribution:
    """A further run of the same kind: Student's t around `centre`.

    `centre + t * sqrt(spread**2 * (1 + 1/count) + own_error**2 + centre_error**2)`: Hahn and
    Meeker, "Statistical Intervals" (1991), chapter 4, with the pooled spread and the errors of the
    figures themselves.

    Attributes:
        centre: mean of the runs, weighted where their figures are not known equally well.
        spread: standard deviation from run to run beyond the figures' own errors, in their unit.
        degrees: degrees of freedom of the spread.
        count: how many runs there are; where they count by weights, as many equal ones as are
            worth the same.
        own_error: standard error of the further run's figure, where the run is so short that its
            steps do not average out; in the figure's unit.
        usual_error: the same of one of the runs, root mean square.
        centre_error: what the runs' own errors make of the mean's.
    """

    centre: float
    spread: float
    degrees: float
    count: float
    own_error: float = 0.0
    usual_error: float = 0.0
    centre_error: float = 0.0

    @property
    def noise(self) -> float:
        """The standard deviation of the further run's figure."""
        return math.hypot(self.spread, self.own_error)

    def error(self, *, count: float | None = None) -> float:
        """Returns the standard deviation of a further run less the mean of `count` runs.

        Args:
            count: None for the runs that are predicted from.
        """
        of_mean = self.centre_error if count is None else self.usual_error / math.sqrt(count)
        spread = self.spread * math.sqrt(1 + 1 / (self.count if count is None else count))
        return math.hypot(spread, self.own_error, of_mean)

    def half_width(self, level: float, *, count: float | None = None) -> float:
        """Returns what a further run exceeds the mean by with probability `level`.

        Args:
            level: one-sided.
            count: runs in the mean; None for the runs that are predicted from.
        """
        return float(special.stdtrit(self.degrees, 1 - level)) * self.error(count=count)

    def p_value(self, excess: float) -> float:
        """Returns the probability that a further run lies as far above the centre."""
        if not self.error():
            return 0.0 if excess > 0 else 1.0
        return float(special.stdtr(self.degrees, -excess / self.error()))

    def detectable(self, threshold: float) -> float:
        """Returns the true excess that is above `threshold` with a probability of 80 %."""
        return threshold + float(special.ndtri(_POWER)) * self.error()


def predict(
    samples: Sequence[float],
    *,
    prior: float,
    errors: Sequence[float] = (),
    usual_errors: Sequence[float] = (),
) -> PredictiveDistribution:
    """Returns what the runs and the prior say about a further run.

    Args:
        samples: one figure a run, at least one.
        prior: standard deviation of one run to expect, in the figure's unit.
        errors: the standard errors of the samples themselves, likewise; empty: 0.
        usual_errors: those to expect, by which samples count; empty: all count alike.
    """
    freedom = len(samples) - 1
    degrees = PRIOR_DEGREES + freedom
    own = np.square(errors) if len(errors) else np.zeros(len(samples))
    deviations = np.asarray(samples) - np.mean(samples)
    between = max(0.0, float(np.sum(deviations**2) - freedom * np.mean(own)))
    variance = (PRIOR_DEGREES * prior**2 + between) / degrees
    weights = np.ones(len(samples))
    if variance and len(usual_errors):
        weights = variance / (variance + np.square(usual_errors))
    weights /= np.sum(weights)
    return PredictiveDistribution(
        centre=float(weights @ samples),
        spread=math.sqrt(variance),
        degrees=degrees,
        count=1 / float(weights @ weights),
        usual_error=math.sqrt(float(np.mean(own))),
        centre_error=math.sqrt(float(weights**2 @ own)),
    )


def host_factor(metrics: Sequence[tuple[Sequence[float], float]]) -> float:
    """Returns by how much the runs of a host vary more than the priors say, at least 1.

    A busy host disturbs every metric of a kind. The factor is the median over the metrics of the
    variance over its prior, each over the median it has if the prior is right; this is the
    empirical prior of Smyth, "Linear models and empirical Bayes methods" (2004), made robust.
    Metrics of a kind follow each other, so that they count as one; and two runs that happen to
    lie far apart must not make every further run inconclusive, for then none could tell the truth.
    So 1 counts as much as the prior does, `PRIOR_DEGREES`, beside the runs' own degrees.

    Args:
        metrics: for each metric one figure a run, and its prior standard deviation.
    """
    ratios, freedoms = [], []
    for samples, prior in metrics:
        freedom = float(len(samples) - 1)
        if freedom and prior:
            usual = 2 * special.gammaincinv(freedom / 2, 0.5) / freedom  # median of chi2 / freedom
            ratios.append(float(np.var(samples, ddof=1)) / prior**2 / usual)
            freedoms.append(freedom)
    if not ratios:
        return 1.0
    ratio, freedom = float(np.median(ratios)), float(np.median(freedoms))
    pooled = (PRIOR_DEGREES + freedom * ratio) / (PRIOR_DEGREES + freedom)
    return math.sqrt(max(1.0, pooled))
