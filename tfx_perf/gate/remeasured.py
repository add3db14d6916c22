"""Remeasured: what training candidate and baseline in turns says about a refusal."""

import math
from collections.abc import Sequence

from tfx_perf import records
from tfx_perf.gate.outcome import Outcome, Verdict
from tfx_perf.gate.run import Run
from tfx_perf.settings.rule import Rule
from tfx_perf.statistics import Interval

# How a figure follows the step time, all else being equal; comparable runs have the same batch
# size and the same FLOPs.
_EXPONENTS = {
    "step_time_seconds": 1,
    "cost_per_million_examples": 1,
    "examples_per_second": -1,
    "mfu_ratio": -1,
}


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
        return (
            f"In turns with {self.against} on one host, a step took {self.ratio.value:.3f} times "
            f"as long ({self.ratio.low:.3f} to {self.ratio.high:.3f})."
        )

    @staticmethod
    def may_settle(outcome: Outcome) -> bool:
        """Whether measuring in turns may change the answer from comparing runs."""
        refusal = outcome.verdict in (Verdict.INCONCLUSIVE, Verdict.REGRESSION)
        return refusal and outcome.metric in _EXPONENTS

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
        if self.ratio is not None:
            least, most, tolerated = self._worse(outcome, rule, baseline)
            if least > rule.margin:
                verdict = Verdict.REGRESSION
            elif most <= tolerated:
                verdict = Verdict.PASS
        return outcome.model_copy(
            update={"verdict": verdict, "reason": f"{outcome.reason} {self}"}
        )

    def _worse(
        self, outcome: Outcome, rule: Rule, baseline: Sequence[Run]
    ) -> tuple[float, float, float]:
        """Returns by how much it is worse at least and at most, and what is tolerated."""
        exponent = _EXPONENTS[outcome.metric]
        ratios = [bound**exponent for bound in (self.ratio.low, self.ratio.high)]
        if outcome.kind == "drift":
            blessed = next(run for run in baseline if run.run_id == self.against)
            bound = outcome.highest if exponent > 0 else outcome.lowest
            figure = blessed.figure(outcome.metric)
            if figure is None or not bound:
                return -math.inf, math.inf, 0.0
            ratios = [ratio * figure / bound for ratio in ratios]
            tolerated = 0.0
        else:
            is_open = outcome.verdict is Verdict.INCONCLUSIVE
            tolerated = rule.largest_change if is_open else rule.margin
        least, most = sorted(exponent * (ratio - 1) for ratio in ratios)
        return least, most, tolerated
