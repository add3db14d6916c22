"""Remeasured: what training candidate and baseline in turns says about a refusal."""

import math
from collections.abc import Sequence

from tfx_perf import formatting, metrics, records
from tfx_perf.gate.outcome import Outcome, Verdict
from tfx_perf.gate.run import Run
from tfx_perf.settings.gate import GateSettings
from tfx_perf.settings.rule import Rule
from tfx_perf.statistics import Interval


class Remeasured(records.Record):
    """The ratio of two step times on one host, measured in turns; or why there is none.

    Attributes:
        against: the blessed run that was trained beside the candidate.
        ratio: the candidate's step time over the blessed run's, with its 95 % interval.
        reason: why it could not be measured.
    """

    against: str | None = None
    ratio: Interval | None = None
    reason: str | None = None

    def __str__(self) -> str:
        """In a sentence."""
        if self.ratio is None:
            return f"Not measured again in turns: {self.reason}."
        ends = self.ratio.value, self.ratio.low, self.ratio.high
        value, low, high = map(formatting.short, ends)
        return (
            f"In turns with {self.against} on one host, a step took {value} times as long ({low} "
            f"to {high})."
        )

    def answer(self, verdict: Verdict) -> str:
        """Returns it in a sentence, and what follows for a run that would else be refused.

        Args:
            verdict: that it has led to.
        """
        return f"{self} So it passes." if verdict is Verdict.PASS else str(self)

    @staticmethod
    def may_settle(outcome: Outcome) -> bool:
        """Whether measuring in turns may change the answer from comparing runs."""
        refusal = outcome.verdict in (Verdict.INCONCLUSIVE, Verdict.REGRESSION)
        return refusal and outcome.metric in metrics.STEP_TIME_EXPONENTS

    def settle(self, outcome: Outcome, rule: Rule, *, baseline: Sequence[Run]) -> Outcome:
        """Returns the answer to a rule, which is another one if the interval is clear.

        An open question becomes a regression if the whole interval is beyond the margin, and
        passes if it is within the budget. A regression passes only if the whole interval is
        within the margin; one against the anchor, if the blessed run's figure times the
        interval is within that check's bound.

        Args:
            outcome: from comparing runs.
            rule: with a margin.
            baseline: the runs that were compared with.
        """
        if not self.may_settle(outcome):
            return outcome
        verdict = outcome.verdict
        if self.ratio is not None and outcome.kind == "drift":
            verdict = self._judge_drift(self.ratio, outcome, baseline)
        elif self.ratio is not None:
            verdict = self._judge_change(self.ratio, outcome, rule)
        return outcome.model_copy(
            update={"verdict": verdict, "reason": f"{outcome.reason} {self.answer(verdict)}"}
        )

    @staticmethod
    def _judge_change(ratio: Interval, outcome: Outcome, rule: Rule) -> Verdict:
        """Answers by how much worse it is than the blessed run."""
        sign = math.copysign(1, metrics.STEP_TIME_EXPONENTS[outcome.metric])
        least, most = sorted(sign * (factor - 1) for factor in _factors(ratio, outcome))
        is_open = outcome.verdict is Verdict.INCONCLUSIVE
        if least > rule.smallest_change:
            return Verdict.REGRESSION
        if most <= (rule.largest_change if is_open else rule.smallest_change):
            return Verdict.PASS
        return outcome.verdict

    def _judge_drift(
        self, ratio: Interval, outcome: Outcome, baseline: Sequence[Run]
    ) -> Verdict:
        """Answers by what the blessed run's figure would be with this run's code."""
        blessed = next(run for run in baseline if run.run_id == self.against)
        figure = blessed.figure(outcome.metric)
        if figure is None:
            return outcome.verdict
        low, high = sorted(figure * factor for factor in _factors(ratio, outcome))
        above = outcome.lowest is None or low >= outcome.lowest
        below = outcome.highest is None or high <= outcome.highest
        return Verdict.PASS if above and below else outcome.verdict


def is_clear(ratio: Interval, *, settings: GateSettings) -> bool:
    """Whether the interval of the ratio is on one side of what the step time may change by."""
    rule = settings.rules_for(()).get("step_time_seconds")
    limit = 1 + (rule.smallest_change if rule else 0.0)
    return ratio.low > limit or ratio.high <= limit


def _factors(ratio: Interval, outcome: Outcome) -> tuple[float, float]:
    """Returns the ends of the interval of the figure over the blessed run's."""
    exponent = metrics.STEP_TIME_EXPONENTS[outcome.metric]
    return ratio.low**exponent, ratio.high**exponent
