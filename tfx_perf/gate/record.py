"""The gate's decision as it goes to disk."""

from typing import ClassVar

from tfx_perf import records
from tfx_perf.gate import outcome, run

FILE_NAME = "evaluation.json"


class GateRecord(records.Record):
    """The decision on one run and everything it rests on.

    Attributes:
        blessed: whether the run may be pushed.
        headline: the decision in a sentence.
        outcomes: one for each rule.
        candidate: the run that was judged.
        baseline_runs: the comparable blessed runs, oldest first.
        differences: environment field to its value in the latest blessed run and in this
            one, where no blessed run is comparable.
    """

    SCHEMA: ClassVar[str] = "tfx_perf.gate/1"

    blessed: bool
    headline: str
    outcomes: tuple[outcome.Outcome, ...]
    candidate: run.Run
    baseline_runs: tuple[run.Run, ...]
    differences: dict[str, tuple[str, str]]

    def figures(self) -> dict[str, float | None]:
        """Returns the decision's figures, keyed by the catalogue."""
        return {
            "rule_count": float(sum(outcome.checked for outcome in self.outcomes)),
            "failed_rule_count": float(sum(outcome.refuses for outcome in self.outcomes)),
            "baseline_run_count": float(len(self.baseline_runs)),
        }
