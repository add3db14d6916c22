"""A run's figure beside the same figure of the last comparable blessed runs."""

import dataclasses
import functools
import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tfx_perf.config.rule import DERIVED, PRIMARY, Rule
from tfx_perf.core import formatting, metrics
from tfx_perf.gate import noise
from tfx_perf.gate.decision import RuleResult, Shortness, Verdict
from tfx_perf.gate.noise import OwnErrors, PredictiveDistribution, predict

_ROUNDING = 1e-9  # relative rounding error of a mean of equal figures
# A run passes if a change beyond max_regression is ruled out with 95% confidence.
_BUDGET_LEVEL = 0.05
# A run's own error may take this share of max_regression, or of the part that noise between runs
# leaves of it, so that most runs that are no worse can be told from those beyond max_regression.
_OWN_SHARE = 0.5
# The smallest factor to suggest: a training that is longer by less would hardly differ.
_LEAST_FACTOR = 2.0
# Without a seed, losses of unchanged code may differ by this many max_regressions.
_BUDGETS_OF_REPEATS = 2.0


@dataclasses.dataclass(frozen=True)
class Change:
    """One comparison, and the answer to it at any level of significance.

    Attributes:
        history: the blessed runs' figures by their ids, oldest first, at least one.
        baseline_runs: how many of the last of them form the baseline.
        rule: with a tolerance.
        level_runs: the runs at the current level by other figures, too; without any of these runs,
            this figure alone determines the level.
        is_repeat: whether all these runs, and the candidate, had the same code and settings.
    """

    key: str
    value: float
    history: Mapping[str, float]
    baseline_runs: int
    rule: Rule
    host_factor: float = 1.0
    own_errors: OwnErrors = OwnErrors()
    level_runs: Collection[str] = ()
    is_repeat: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether the figure does not vary, so that any difference from the last run is real."""
        return metrics.lookup(self.key).is_deterministic

    @property
    def is_tested(self) -> bool:
        """Whether noise in this figure may cause a good run to be refused."""
        return not (self.is_exact or self.rule.advisory)

    @property
    def varies_with_the_data(self) -> bool:
        """Whether its variation comes from the data, and the rule does not ask for certainty."""
        return noise.kind(self.key) is noise.Kind.QUALITY and self.rule.max_regression is None

    @property
    def is_learning_noise(self) -> bool:
        """Whether it is a loss of repeated trainings, too few to show how much it varies."""
        is_loss = metrics.lookup(self.key).unit == "loss" and self.varies_with_the_data
        return is_loss and self.is_repeat and len(self.level) <= noise.PRIOR_DEGREES

    @functools.cached_property
    def samples(self) -> Sequence[float]:
        """The figures of the last runs."""
        return [self.history[run] for run in self._last_runs]

    @functools.cached_property
    def sign(self) -> float:
        """1 if higher is worse, else -1; a figure times the sign is worse the higher it is."""
        return self.rule.worse_sign(self.key)

    @functools.cached_property
    def own_level_runs(self) -> Sequence[str]:
        """The runs since the last change of level, by this figure alone."""
        return self._since_change(self._last_runs)

    @functools.cached_property
    def level(self) -> Sequence[float]:
        """The samples at the current level."""
        return [self.history[run] for run in self._runs_of_level]

    @functools.cached_property
    def baseline(self) -> float:
        """The figure to compare with."""
        return self.samples[-1] if self.is_exact else self.prediction.center

    @functools.cached_property
    def scale(self) -> float:
        """The divisor of changes."""
        return max(abs(self.baseline), self.rule.min_baseline)

    @functools.cached_property
    def worse(self) -> float:
        """By how much the figure is worse than the baseline, in its unit."""
        return self.sign * (self.value - self.baseline)

    @functools.cached_property
    def prior(self) -> float:
        """The expected standard deviation of a run on a quiet host, in the metric's unit."""
        return self._relative_prior * self._usual

    @functools.cached_property
    def prediction(self) -> PredictiveDistribution:
        """The distribution of a run that is no worse."""
        prior = self.host_factor * self.prior
        usual_errors = self.own_errors.usual
        predicted = predict(
            self.level,
            prior=prior,
            errors=self._errors(self._runs_of_level),
            usual_errors=[usual_errors.get(run, 0.0) * self._usual for run in self._runs_of_level],
            # A rate has the relative error of the time it derives from, hence the larger one.
            own_error=self.own_errors.candidate * max(abs(self.value), self._usual),
        )
        if not self.varies_with_the_data:
            return predicted
        # Unlike hosts, data vary in the long run as they do now. In a few runs, of which those with
        # the worst data may have been refused, their variation would look too small.
        ever = [self.history[run] for run in self._since_change(list(self.history))]
        wider = predict(ever, prior=prior)
        return dataclasses.replace(predicted, spread=wider.spread, degrees=wider.degrees)

    @functools.cached_property
    def p_value(self) -> float:
        """Probability that a run that is no worse looks as bad."""
        return self.prediction.p_value(self.worse)

    @property
    def uncertainty_by_shortness(self) -> float:
        """Half the 90% interval of the difference, from the shortness of the runs alone."""
        return dataclasses.replace(self.prediction, spread=0.0).half_width(_BUDGET_LEVEL)

    @functools.cached_property
    def shortness(self) -> Shortness | None:
        """How much longer trainings must be to decide; None if they would be inconclusive, too.

        The median of a few hundred quick steps on a busy machine may be off by half.
        """
        expected = self.prediction
        by_noise, by_own, by_baseline = (
            expected.quantile(_BUDGET_LEVEL) * error
            for error in (
                expected.spread_of_difference, expected.own_error, expected.center_error
            )
        )  # fmt: skip
        left = self.rule.largest_change * self.scale - by_noise
        if left <= 0 or not (by_own or by_baseline):
            return None
        # Errors fall with the square root of the steps. If the blessed runs' own errors are too
        # large, no candidate is long enough.
        room = (_OWN_SHARE * left) ** 2
        is_of_baseline = by_baseline**2 >= room
        if is_of_baseline:
            factor = (by_own**2 + by_baseline**2) / room
        else:
            factor = by_own**2 / (room - by_baseline**2)
        return Shortness(factor=max(_LEAST_FACTOR, factor), is_of_baseline=is_of_baseline)

    def threshold(self, level: float) -> float:
        """Returns by how much a figure must be worse to be a regression, in its unit."""
        tolerance = self.rule.smallest_change * self.scale
        if self.is_exact:
            return tolerance
        if self.is_learning_noise:
            tolerance = _BUDGETS_OF_REPEATS * self.rule.largest_change * self.scale
        quantiles = self.prediction.quantile(level)
        return max(tolerance, self.excess(self.prediction, quantiles, start=self.baseline))

    def excess(self, expected: PredictiveDistribution, quantiles: float, *, start: float) -> float:
        """Returns the excess over `start` of a figure that is `quantiles` errors above it.

        The own error is a share of that figure, not of this run's, which would give a slow run a
        larger limit than a fast one. Infinite if the error grows as fast as the excess.
        """
        of_runs = quantiles * math.hypot(expected.spread_of_difference, expected.center_error)
        ratio = quantiles * self.own_errors.candidate
        excess = math.hypot(of_runs, ratio * self._usual)
        if self.sign < 0 or start + excess <= self._usual:
            return excess
        if ratio >= 1.0:
            return math.inf
        # excess**2 == of_runs**2 + (ratio * (start + excess))**2
        rest = 1.0 - ratio**2
        return (ratio**2 * start + math.sqrt(of_runs**2 * rest + (ratio * start) ** 2)) / rest

    def outcome(self, *, level: float, smallest_level: float) -> RuleResult:
        """Returns the answer at `level`; `smallest_level` determines what is detectable."""
        lowest, highest = metrics.lookup(self.key).bounds
        allowed = self.baseline + self.sign * self.threshold(level)
        allowed = min(max(allowed, lowest), highest)
        limit = allowed if math.isfinite(allowed) else None
        interval = 0.0 if self.is_exact else self.prediction.half_width(_BUDGET_LEVEL)
        difference = self.value - self.baseline
        detectable = self.threshold(smallest_level)
        if not self.is_exact:
            start = self.baseline + self.sign * detectable
            detectable += self.excess(self.prediction, noise.POWER_QUANTILE, start=start)
        verdict, reason = self._judge(allowed, interval, level=level)
        return RuleResult(
            metric=self.key,
            kind="change",
            verdict=verdict,
            reason=reason,
            value=self.value,
            baseline=self.baseline,
            change=self._relative(difference),
            change_low=self._relative(max(difference - interval, lowest - self.baseline)),
            change_high=self._relative(min(difference + interval, highest - self.baseline)),
            tolerance=self.rule.tolerance,
            lowest=limit if self.sign < 0 else None,
            highest=limit if self.sign > 0 else None,
            detectable=self._relative(detectable) if math.isfinite(detectable) else None,
            shortness=self.shortness if verdict is Verdict.INCONCLUSIVE else None,
        )

    def _judge(self, allowed: float, interval: float, *, level: float) -> tuple[Verdict, str]:
        shown = functools.partial(formatting.format_value, self.key)
        name = "last blessed run's" if self.is_exact else "baseline"
        comparison = compared(self.key, self.value, f"the {name}", self.baseline)
        is_worse = self.worse > self.rule.smallest_change * self.scale
        is_unlikely = self.is_exact or self.p_value <= level
        is_explained = self.is_learning_noise and self.worse <= self.threshold(level)
        if is_worse and is_unlikely and not is_explained:
            because = "the tolerance allows" if self.is_exact else "tolerance and noise allow"
            return Verdict.REGRESSION, f"{comparison}, beyond what {because} ({shown(allowed)})."
        # How much worse the figure may be; a rate cannot fall below 0.
        lowest, highest = metrics.lookup(self.key).bounds
        most = highest - self.baseline if self.sign > 0 else self.baseline - lowest
        worst = min(self.worse + interval, most)
        is_best = self.sign * self.value <= min(self.sign * sample for sample in self.level)
        must_be_ruled_out = not (self.is_exact or is_best or self.varies_with_the_data)
        if must_be_ruled_out and worst > self.rule.largest_change * self.scale:
            return Verdict.INCONCLUSIVE, (
                f"{comparison}; {self._doubt(worst)}, and {self.rule.largest_change:.1%} must "
                "be ruled out."
            )
        because = "unchanged code and settings explain" if is_unlikely else "noise explains"
        return Verdict.PASS, f"{comparison}{f', which {because}' if is_worse else ''}."

    def _doubt(self, worst: float) -> str:
        """Returns why the figure may be that much worse."""
        if self.shortness is None:
            noise_then = self._percent(self.prediction.noise)
            return f"with {noise_then} of noise it may be {self._percent(worst)} worse"
        short = "the blessed runs are" if self.shortness.is_of_baseline else "the training is"
        uncertainty = self._percent(self.uncertainty_by_shortness)
        return f"{short} so short that the difference is known to within {uncertainty}"

    @functools.cached_property
    def _runs_of_level(self) -> Sequence[str]:
        shared = [run for run in self._last_runs if run in self.level_runs]
        return shared or self.own_level_runs

    @functools.cached_property
    def _usual(self) -> float:
        """The usual figure, or the rule's scale where that is larger."""
        return max(abs(float(np.mean(self.level))), self.rule.min_baseline)

    def _errors(self, runs: Collection[str]) -> Sequence[float]:
        """Returns the standard errors of some blessed runs' figures, in the metric's unit."""
        ratios = self.own_errors.blessed
        return [ratios.get(run, 0.0) * abs(self.history[run]) for run in runs]

    @functools.cached_property
    def _last_runs(self) -> Sequence[str]:
        return list(self.history)[-self.baseline_runs :]

    def _since_change(self, runs: Sequence[str]) -> Sequence[str]:
        figures = [self.history[run] for run in runs]
        usual = max(abs(float(np.median(figures))), self.rule.min_baseline)
        usual_error = float(np.sqrt(np.mean(np.square(self._errors(runs)))))
        noise_then = math.hypot(self._relative_prior * usual, usual_error)
        begin, end = noise.level_begin(figures, noise=noise_then), len(figures)
        if 1 < end == begin + 1:
            # A single run may have been luck, and would then cause all later ones to be refused.
            before = noise.level_begin(figures[:-1], noise=noise_then)
            if abs(self.value - np.median(figures[before:-1])) < abs(self.value - figures[-1]):
                begin, end = before, end - 1
        return runs[begin:end]

    @property
    def _relative_prior(self) -> float:
        return self.rule.expected_std or noise.prior(self.key)

    def _percent(self, difference: float) -> str:
        relative = self._relative(difference)
        return "any amount" if relative is None else f"{relative:.1%}"

    def _relative(self, difference: float) -> float | None:
        return difference / self.scale if self.scale else None


def compared(key: str, value: float, name: str, reference: float) -> str:
    """Returns e.g. `3.21 ms is 5.0% above the baseline 3.06 ms`, with `name` "the baseline"."""
    shown, there = (formatting.format_value(key, figure) for figure in (value, reference))
    change = (value - reference) / abs(reference) if reference else 0.0
    if not change and value != reference:  # no ratio to zero
        return f"{shown} is {'above' if value > reference else 'below'} {name} {there}"
    if abs(change) < _ROUNDING:
        return f"{shown} is equal to {name}"
    if abs(change) < 0.0005:  # 0.0%
        return f"{shown} is within 0.1% of {name} {there}"
    if change > 1 and reference > 0:  # percentages are hard to read then
        return f"{shown} is {1 + change:.1f} times {name} {there}"
    return f"{shown} is {abs(change):.1%} {'above' if change > 0 else 'below'} {name} {there}"


def beside_step_time(
    outcome: RuleResult, by_metric: Mapping[str, Change], *, leader: RuleResult | None
) -> RuleResult:
    """Returns the outcome; changes it if the step time, whose outcome is `leader`, explains it."""
    if outcome.metric in by_metric:
        outcome = _skip_uncertain_mean(outcome, by_metric[outcome.metric], leader=leader)
    return _pass_share_of_shorter_step(outcome, by_metric)


def _skip_uncertain_mean(
    outcome: RuleResult, change: Change, *, leader: RuleResult | None
) -> RuleResult:
    """Returns the outcome; skips it if only the shortness of the training leaves it open.

    In a training of a tenth of a second, one stall of the machine halves the mean rate, and with it
    MFU and cost, so that healthy runs would always be refused. The median of the same steps does
    not change.
    """
    is_open = outcome.kind == "change" and outcome.verdict is Verdict.INCONCLUSIVE
    if not (is_open and outcome.metric in DERIVED):
        return outcome
    if leader is None or leader.verdict is not Verdict.PASS:
        return outcome
    if change.uncertainty_by_shortness <= _OWN_SHARE * change.rule.largest_change * change.scale:
        return outcome
    reason = (
        "The training was too short: the mean of its step times is uncertain by "
        f"{change.own_errors.candidate:.1%}. Their median was compared."
    )
    return outcome.model_copy(update={"verdict": Verdict.SKIPPED, "reason": reason})


def _pass_share_of_shorter_step(outcome: RuleResult, by_metric: Mapping[str, Change]) -> RuleResult:
    """Returns the outcome; a share that rose only because steps are shorter passes."""
    step = by_metric.get(PRIMARY)
    if outcome.metric not in metrics.SHARES_OF_A_STEP or outcome.value is None or step is None:
        return outcome
    if step.value >= step.baseline or outcome.kind == "limit":
        return outcome
    share = outcome.value * step.value / step.baseline
    # If noise leaves the share undecided, its time must not be longer at all.
    bounds = {Verdict.REGRESSION: outcome.highest, Verdict.INCONCLUSIVE: outcome.baseline}
    bound = bounds.get(outcome.verdict)
    if bound is None or share > bound:
        return outcome
    shown = functools.partial(formatting.format_value, outcome.metric)
    now, then = (formatting.format_seconds(seconds) for seconds in (step.value, step.baseline))
    reason = (
        f"{shown(outcome.value)} of a step of {now} is no longer than "
        f"{shown(share)} of the baseline's, {then}."
    )
    return outcome.model_copy(update={"verdict": Verdict.PASS, "reason": reason})
