"""Remeasured: what training candidate and baseline in turns says about an open question."""

from tfx_perf import records
from tfx_perf.gate.outcome import Outcome, Verdict
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
        """Whether measuring in turns may answer what comparing runs has left open."""
        is_open = outcome.kind == "change" and outcome.verdict is Verdict.INCONCLUSIVE
        return is_open and outcome.metric in _EXPONENTS

    def settle(self, outcome: Outcome, rule: Rule) -> Outcome:
        """Returns the answer to a rule, which is another one if the question was open.

        A change within the budget passes and one beyond the margin is a regression, if the
        whole interval is; where it is neither, the question stays open.

        Args:
            outcome: from comparing runs.
            rule: with a margin.
        """
        if not self.may_settle(outcome):
            return outcome
        if self.ratio is None:
            return outcome.model_copy(update={"reason": f"{outcome.reason} {self}"})
        exponent = _EXPONENTS[outcome.metric]
        changes = [bound**exponent - 1 for bound in (self.ratio.low, self.ratio.high)]
        least, most = sorted(exponent * change for change in changes)  # for the worse
        verdict = Verdict.INCONCLUSIVE
        if least > rule.margin:
            verdict = Verdict.REGRESSION
        elif most <= rule.largest_change:
            verdict = Verdict.PASS
        return outcome.model_copy(
            update={"verdict": verdict, "reason": f"{outcome.reason} {self}"}
        )
