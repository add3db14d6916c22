"""The gate's record of a run on disk: an answer to each rule, and the decision."""

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import pydantic

from tfx_perf.config.gate import GateSettings
from tfx_perf.config.rule import DERIVED, PRIMARY, Rule
from tfx_perf.core import formatting, metrics, records, statistics
from tfx_perf.gate.run import Run

FILE_NAME = "evaluation.json"


class Verdict(str, enum.Enum):
    """A rule's answer, the most serious first: LIMIT refuses, PASS and SKIPPED never do.

    `tfx_perf.config.gate.Policy` says which of the others do.
    """

    INVALID = "invalid"
    LIMIT = "limit"
    REGRESSION = "regression"
    INCONCLUSIVE = "inconclusive"
    INCOMPARABLE = "incomparable"
    NO_BASELINE = "no baseline"
    SKIPPED = "skipped"
    PASS = "pass"

    @classmethod
    def _missing_(cls, value: object) -> "Verdict | None":
        return _EARLIER_NAMES.get(value)


_EARLIER_NAMES: dict[object, Verdict] = {
    "not compared": Verdict.NO_BASELINE,
    "not comparable": Verdict.INCOMPARABLE,
    "not checked": Verdict.SKIPPED,
}


class Shortness(records.Record):
    """How many times as many steps would decide, and whether the baseline needs them, too."""

    factor: float
    is_of_baseline: bool


class Remedy(records.Record):
    """A setting such as `gate.rules.mfu_ratio.max`, its value, and advice without a period."""

    setting: str
    value: str
    suggestion: str

    def __str__(self) -> str:
        advice = self.suggestion[:1].upper() + self.suggestion[1:]
        return f"{advice} ({self.setting} is {self.value})."


class RuleResult(records.Record):
    """A rule's answer with the figures behind it, in the metric's unit; None if there is none.

    Changes are relative to the baseline, or to the rule's `min_baseline` where that is larger.

    Attributes:
        kind: `limit` (absolute bounds), `change` (against the last blessed runs) or `drift`
            (against the reference run).
        refuses: whether it prevents a blessing; set by the gate's policy.
        advisory: whether the rule only reports.
        baseline: the figure compared with. For a figure that is not comparable but far worse, that
            of the last blessed runs.
        change: relative change from the baseline, e.g. 0.1 for 10% more.
        change_low: lower end of the change's 90% interval.
        tolerance: the relative change for the worse that is never called a regression.
        lowest: the smallest value that is not refused as worse; None if there is none.
        highest: the largest value that is not refused as worse; None if there is none.
        detectable: the smallest change for the worse that is called a regression in four of
            five runs.
        shortness: None if the question is decided, or longer trainings would not decide it.
        reference_run: of a drift: a run at the reference level.
    """

    RENAMED: ClassVar[Mapping[str, str]] = {"margin": "tolerance"}

    metric: Annotated[str, pydantic.BeforeValidator(metrics.new_key)]
    kind: Literal["limit", "change", "drift"]
    verdict: Verdict
    reason: str
    refuses: bool = False
    advisory: bool = False
    value: float | None = None
    baseline: float | None = None
    change: float | None = None
    change_low: float | None = None
    change_high: float | None = None
    tolerance: float | None = None
    lowest: float | None = None
    highest: float | None = None
    detectable: float | None = None
    shortness: Shortness | None = None
    remedy: Remedy | None = None
    reference_run: str | None = None

    @property
    def from_baseline(self) -> statistics.Interval | None:
        """The change and its interval as shares of the baseline; None if nothing was compared."""
        if self.change is None:
            return None
        low, high = (
            self.change if end is None else end for end in (self.change_low, self.change_high)
        )
        value, *ends = map(self.of_baseline, (self.change, low, high))
        if (self.baseline or 0.0) > 0 and metrics.lookup(self.metric).bounds[0] >= 0:
            ends = [max(-1.0, end) for end in ends]
        return statistics.Interval(value=value, low=ends[0], high=ends[1])

    def of_baseline(self, share: float) -> float:
        """Converts a share of the scale of changes to a share of the baseline, if that is known."""
        if self.value is None or self.baseline is None or self.baseline <= 0 or not self.change:
            return share
        return share * (self.value / self.baseline - 1) / self.change

    @property
    def is_far_worse(self) -> bool:
        """Whether it is not comparable, and too bad to be blessed unseen; see `drift`."""
        return self.verdict is Verdict.INCOMPARABLE and self.baseline is not None

    @property
    def checked(self) -> bool:
        """Whether there was something to check and to check against."""
        return self.verdict not in (Verdict.SKIPPED, Verdict.NO_BASELINE, Verdict.INCOMPARABLE)

    @property
    def may_be_settled(self) -> bool:
        """Whether measuring in turns may change the answer that comparing runs gave."""
        if self.metric in metrics.SHARES_OF_A_STEP:  # what noise leaves open, the step settles
            return self.verdict is Verdict.INCONCLUSIVE
        if self.verdict is Verdict.PASS:
            return self.worse > 0
        refusal = self.verdict in (Verdict.INCONCLUSIVE, Verdict.REGRESSION)
        return refusal and self.metric in metrics.STEP_TIME_EXPONENTS

    @property
    def worse(self) -> float:
        """The change for the worse of a step time, or what follows from it; 0 for other figures."""
        return (self.change or 0.0) * metrics.STEP_TIME_EXPONENTS.get(self.metric, 0)


def to_answer(outcomes: Iterable[RuleResult]) -> list[RuleResult]:
    """Leaves out outcomes that only follow from a step time refused as a regression."""
    given = [*outcomes]
    refused = {item.verdict for item in given if item.metric == PRIMARY and item.refuses}
    follows = [Verdict.INCONCLUSIVE] if Verdict.REGRESSION in refused else []
    return [item for item in given if item.metric not in DERIVED or item.verdict not in follows]


def remedies(outcomes: Iterable[RuleResult]) -> dict[Remedy, list[RuleResult]]:
    """Returns each remedy once, with the refusals that it answers."""
    by_remedy: dict[Remedy, list[RuleResult]] = {}
    for outcome in to_answer(outcomes):
        if outcome.remedy:
            by_remedy.setdefault(outcome.remedy, []).append(outcome)
    return by_remedy


class AbRerun(records.Record):
    """The candidate's step time over those of blessed runs, in turns with them; or the reason.

    Attributes:
        against: the last blessed run that could be trained again.
        ratio: the candidate's step time over its, with the 95% interval.
        reference_run: the run that drift counts from, if a drift was still to be settled.
        reference_ratio: likewise, over its step time.
        reason: why there is no ratio.
    """

    against: str | None = None
    ratio: statistics.Interval | None = None
    reference_run: str | None = None
    reference_ratio: statistics.Interval | None = None
    reason: str | None = None

    def answer(self, verdict: Verdict) -> str:
        """Returns the results and their effect on a run that would be refused, in sentences."""
        pairs = (self.against, self.ratio), (self.reference_run, self.reference_ratio)
        sentences = [
            f"In turns with {run} on one host, a step took {formatting.short(ratio.value)} times "
            f"as long ({ratio.spread})."
            for run, ratio in pairs
            if ratio
        ]
        if not sentences:
            return f"Not measured again in turns: {self.reason}."
        return " ".join([*sentences, "So it passes."] if verdict is Verdict.PASS else sentences)

    def settle(self, outcome: RuleResult, rule: Rule, *, baseline: Sequence[Run]) -> RuleResult:
        """Returns another answer that may be settled if the interval is clear, otherwise the same.

        An inconclusive answer, or a pass of a run that is worse, becomes a regression if the whole
        interval is beyond the tolerance. An inconclusive one passes if the interval is within
        max_regression, a regression only if it is within the tolerance. A regression since the
        reference passes if the figure of the reference, or of the blessed run, times the interval
        is within that check's bound.
        """
        verdict, is_drift = outcome.verdict, outcome.kind == "drift"
        if is_drift and verdict is not Verdict.PASS:
            exponent = metrics.STEP_TIME_EXPONENTS.get(outcome.metric, 1)
            blessed = [run.figure(outcome.metric) for run in baseline if run.run_id == self.against]
            compared = [(self.ratio, figure) for figure in blessed]
            # Several figures of a step may have reference runs of their own, at one level.
            compared.append((self.reference_ratio, outcome.baseline))
            for ratio, figure in compared:
                if ratio and figure and _is_within(ratio, figure, exponent, outcome):
                    verdict = Verdict.PASS
        elif ratio := self.reference_ratio if is_drift else self.ratio:
            verdict = self._judge_change(ratio, outcome, rule)
        return outcome.model_copy(
            update={"verdict": verdict, "reason": f"{outcome.reason} {self.answer(verdict)}"}
        )

    @staticmethod
    def _judge_change(ratio: statistics.Interval, outcome: RuleResult, rule: Rule) -> Verdict:
        exponent = metrics.STEP_TIME_EXPONENTS.get(outcome.metric, 1)
        factors = ratio.low**exponent, ratio.high**exponent
        least, most = sorted(math.copysign(1, exponent) * (factor - 1) for factor in factors)
        is_open = outcome.verdict is Verdict.INCONCLUSIVE
        if least > rule.smallest_change and outcome.metric in metrics.STEP_TIME_EXPONENTS:
            return Verdict.REGRESSION
        if most <= (rule.largest_change if is_open else rule.smallest_change):
            return Verdict.PASS
        return outcome.verdict


def _is_within(
    ratio: statistics.Interval, figure: float, exponent: float, outcome: RuleResult
) -> bool:
    """Whether a run with this code has a figure within a drift's bounds, where `figure` was."""
    low, high = sorted((figure * ratio.low**exponent, figure * ratio.high**exponent))
    above = outcome.lowest is None or low >= outcome.lowest
    return above and (outcome.highest is None or high <= outcome.highest)


def is_clear(ratio: statistics.Interval, *, settings: GateSettings) -> bool:
    """Whether the ratio's interval is entirely on one side of the allowed change of step time."""
    rule = settings.rules_for(()).get("step_time_seconds")
    limit = 1 + (rule.smallest_change if rule else 0.0)
    return ratio.low > limit or ratio.high <= limit


class GateRecord(records.Record):
    """The decision on one run and everything it is based on.

    Attributes:
        headline: the decision in a sentence.
        outcomes: one for each check; a rule may need several.
        baseline_runs: the comparable blessed runs it was compared with, oldest first.
        differences: if no blessed run is comparable, environment field to its value in the latest
            blessed run of the node and in this one.
        false_alarm_rate: probability of a false alarm in any of the checks.
        host_factor: how many times as much as expected the host's runs vary.
        unread: metrics of Evaluator's output without a rule or known direction.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.gate/2"
    RENAMED: ClassVar[Mapping[str, str]] = {"remeasured": "ab_rerun"}

    blessed: bool
    headline: str
    outcomes: tuple[RuleResult, ...]
    candidate: Run
    baseline_runs: tuple[Run, ...]
    differences: dict[str, tuple[str, str]]
    false_alarm_rate: float
    host_factor: pydantic.FiniteFloat = 1.0
    unread: tuple[str, ...] = ()
    ab_rerun: AbRerun | None = None

    def __str__(self) -> str:
        return self.headline

    @property
    def verdict(self) -> Verdict:
        """The most serious verdict that refuses."""
        if self.blessed:
            return Verdict.PASS
        refusals = {item.verdict for item in self._refusals}
        return next((item for item in Verdict if item in refusals), Verdict.INVALID)

    @property
    def may_be_settled(self) -> bool:
        """Whether measuring in turns may answer everything for which the run is refused.

        Without a refusal: whether only noise explains that the step time passes. A slowdown within
        the noise would otherwise become the baseline on the first lucky run.
        """
        return bool(self._doubtful) and all(item.may_be_settled for item in self._doubtful)

    @property
    def reference_run(self) -> str | None:
        """The run that drift counts from, if drift alone is in doubt; None otherwise."""
        runs = [item.reference_run for item in self._doubtful]
        return None if None in runs else next(iter(runs), None)

    @property
    def _doubtful(self) -> list[RuleResult]:
        """Answers that refuse; without one, that on a step time that only noise lets pass."""
        if self._refusals:
            return self._refusals
        primary = {item.kind: item for item in self.outcomes if item.metric == PRIMARY}
        change, drift = primary.get("change"), primary.get("drift")
        if change is None or change.advisory or change.change is None or change.change_low is None:
            return []
        tolerance, deviation = change.tolerance or 0.0, (change.change - change.change_low) / 2
        # A run no slower than the reference is no slower than the last ones.
        if drift and drift.worse > tolerance + deviation:
            return [drift]
        return [change] if change.worse > tolerance else []

    @property
    def _refusals(self) -> list[RuleResult]:
        return [item for item in self.outcomes if item.refuses]

    def figures(self) -> dict[str, float | None]:
        """Returns the decision's figures, keyed by the catalogue."""
        return {
            "rule_count": float(sum(outcome.checked for outcome in self.outcomes)),
            "failed_rule_count": float(sum(outcome.refuses for outcome in self.outcomes)),
            "baseline_run_count": float(len(self.baseline_runs)),
            "cost_per_million_examples": self.candidate.figure("cost_per_million_examples"),
        }
