"""The gate's decision as it goes to disk."""

from typing import ClassVar

import pydantic

from tfx_perf import records
from tfx_perf.gate import outcome, run
from tfx_perf.gate.outcome import Verdict
from tfx_perf.gate.remeasured import Remeasured

FILE_NAME = "evaluation.json"

# What stands for the whole run if it is refused for several reasons.
_MOST_SERIOUS_FIRST = (
    Verdict.INVALID, Verdict.LIMIT, Verdict.REGRESSION, Verdict.INCONCLUSIVE,
    Verdict.NOT_COMPARABLE, Verdict.NOT_COMPARED,
)  # fmt: skip


class GateRecord(records.Record):
    """The decision on one run and everything it rests on.

    Attributes:
        blessed: whether the run may be pushed.
        headline: the decision in a sentence.
        outcomes: one for each check; a rule may need several.
        candidate: the run that was judged.
        baseline_runs: the comparable blessed runs it was compared with, oldest first.
        differences: environment field to its value in the latest blessed run of the node and in
            this one, where no blessed run is comparable.
        false_alarm_rate: what the checks were held to, all together.
        host_factor: how many times as much the host's runs vary as was to be expected.
        unread: metrics of Evaluator's output that were not judged, as nobody knows by their names
            which way they are better, and no rule says it.
        remeasured: what training it again beside a blessed run has shown; None if nobody did.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.gate/2"

    blessed: bool
    headline: str
    outcomes: tuple[outcome.Outcome, ...]
    candidate: run.Run
    baseline_runs: tuple[run.Run, ...]
    differences: dict[str, tuple[str, str]]
    false_alarm_rate: float
    host_factor: pydantic.FiniteFloat = 1.0
    unread: tuple[str, ...] = ()
    remeasured: Remeasured | None = None

    @property
    def verdict(self) -> Verdict:
        """The most serious verdict that refuses."""
        if self.blessed:
            return Verdict.PASS
        refusals = {item.verdict for item in self.outcomes if item.refuses}
        return next((item for item in _MOST_SERIOUS_FIRST if item in refusals), Verdict.INVALID)

    @property
    def may_be_settled(self) -> bool:
        """Whether the run is refused for nothing but what measuring in turns may answer."""
        refusals = [item for item in self.outcomes if item.refuses]
        return bool(refusals) and all(map(Remeasured.may_settle, refusals))

    def figures(self) -> dict[str, float | None]:
        """Returns the decision's figures, keyed by the catalogue."""
        cost = self.candidate.figure("cost_per_million_examples")
        return {
            "rule_count": float(sum(outcome.checked for outcome in self.outcomes)),
            "failed_rule_count": float(sum(outcome.refuses for outcome in self.outcomes)),
            "baseline_run_count": float(len(self.baseline_runs)),
            "cost_per_million_examples": cost,
        }
