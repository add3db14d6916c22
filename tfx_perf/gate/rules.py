"""The two kinds of rules: an absolute limit, and a change against the baseline."""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from tfx_perf import config, formatting, metrics
from tfx_perf.gate.outcome import Outcome, Verdict

_CONFIDENCE = 0.95
# Two runs give a spread with one degree of freedom: t is 6.3 and the bound catches nothing.
_RUNS_FOR_A_SPREAD = 3


def check_limit(metric: str, value: float | None, limit: config.Limit) -> Outcome:
    """Checks a figure against absolute bounds, which are inclusive.

    Args:
        metric: catalogue key.
        value: this run's figure in the metric's unit; None refuses.
        limit: the bounds in the metric's unit.
    """
    if value is None:
        return _missing(metric, "limit")
    if limit.min is not None and value < limit.min:
        verdict, reason = Verdict.LIMIT, f"below the minimum {_show(metric, limit.min)}"
    elif limit.max is not None and value > limit.max:
        verdict, reason = Verdict.LIMIT, f"above the maximum {_show(metric, limit.max)}"
    else:
        verdict, reason = Verdict.PASS, "within the limits"
    return Outcome(
        metric=metric, rule="limit", verdict=verdict, reason=f"{_show(metric, value)} is {reason}.",
        value=value, lowest=limit.min, highest=limit.max,
    )


def check_change(
    metric: str, value: float | None, *, baseline: Sequence[float], margin: float
) -> Outcome:
    """Checks a figure against the same figure of comparable blessed runs.

    The baseline is their median. Up to two runs, a change for the worse beyond the margin
    refuses. From three runs on it must also lie beyond what their spread explains, the
    one-sided 95 % prediction bound for one further run: a difference has to be both large
    enough to matter and larger than the noise. The run is the unit, never the step: steps
    of one run share its disturbances and understate the noise.

    Args:
        metric: catalogue key; its direction says which way is worse.
        value: this run's figure in the metric's unit; None refuses.
        baseline: the comparable runs' figures, one a run; empty is not checked.
        margin: relative change for the worse that always passes, e.g. 0.1 for 10 %.
    """
    if value is None:
        return _missing(metric, "change")
    if not baseline:
        reason = "No comparable blessed run has this figure."
        return Outcome(
            metric=metric, rule="change", verdict=Verdict.NOT_CHECKED, reason=reason, value=value
        )
    # Turned round, a metric that should be high is one that should be low.
    sign = -1.0 if metrics.CATALOGUE[metric].direction is metrics.Direction.HIGHER else 1.0
    median = float(np.median(baseline))
    by_margin = sign * median + margin * abs(median)
    by_noise = prediction_bound([sign * figure for figure in baseline])
    worst = sign * max(by_margin, by_noise)
    change = (value - median) / abs(median) if median else None
    refused = sign * value > sign * worst
    because = f"the margin of {margin:.1%}" if by_margin >= by_noise else "the runs' spread"
    return Outcome(
        metric=metric,
        rule="change",
        verdict=Verdict.REGRESSION if refused else Verdict.PASS,
        reason=(
            f"{_show(metric, value)} is {_describe(change)} the baseline {_show(metric, median)}, "
            f"{'beyond' if refused else 'within'} the allowed {_show(metric, worst)} ({because})."
        ),
        value=value,
        baseline=median,
        change=change,
        lowest=worst if sign < 0 else None,
        highest=worst if sign > 0 else None,
    )


def prediction_bound(samples: Sequence[float], *, confidence: float = _CONFIDENCE) -> float:
    """Returns the one-sided upper prediction bound for one further sample.

    `mean + t(confidence, n - 1) * sqrt(1 + 1/n) * sd`, for samples of a normal
    distribution: Hahn and Meeker, "Statistical Intervals" (1991), chapter 4. Minus infinity
    with fewer than three samples or without any spread: they say nothing about noise.

    Args:
        samples: one figure a run.
        confidence: probability that a further sample of the same kind stays below.
    """
    count = len(samples)
    if count < _RUNS_FOR_A_SPREAD or np.ptp(samples) == 0:
        return -math.inf
    quantile = float(stats.t.ppf(confidence, count - 1))
    return float(np.mean(samples) + quantile * math.sqrt(1 + 1 / count) * np.std(samples, ddof=1))


def _missing(metric: str, rule: str) -> Outcome:
    component = metrics.CATALOGUE[metric].component
    reason = f"{component} recorded no such figure, and a rule without its figure refuses."
    return Outcome(metric=metric, rule=rule, verdict=Verdict.INVALID, reason=reason)


def _describe(change: float | None) -> str:
    if change is None:  # no ratio to a baseline of zero
        return "against"
    return f"{abs(change):.1%} {'above' if change > 0 else 'below'}" if change else "equal to"


def _show(metric: str, value: float) -> str:
    return formatting.format_value(metric, value)
