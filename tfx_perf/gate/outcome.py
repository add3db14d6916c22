"""What a rule says about a run."""

import enum

from tfx_perf import records


class Verdict(str, enum.Enum):
    """A rule's answer."""

    PASS = "pass"
    LIMIT = "limit"
    REGRESSION = "regression"
    INVALID = "invalid"
    NOT_CHECKED = "not checked"


class Outcome(records.Record):
    """A rule's answer with the figures it rests on, in the metric's unit.

    Attributes:
        metric: catalogue key.
        rule: `limit` (absolute bounds) or `change` (against the baseline).
        verdict: the answer.
        reason: the answer in a sentence.
        value: this run's figure; None if it could not be measured.
        baseline: median of the comparable blessed runs; None if there are none.
        change: relative change from the baseline, e.g. 0.1 for 10 % more; None without a
            baseline or with one that is zero.
        lowest: the smallest value that passes; None if any small value does.
        highest: the largest value that passes; None if any large value does.
    """

    metric: str
    rule: str
    verdict: Verdict
    reason: str
    value: float | None = None
    baseline: float | None = None
    change: float | None = None
    lowest: float | None = None
    highest: float | None = None

    @property
    def refuses(self) -> bool:
        """Whether the run may not be blessed."""
        return self.verdict in (Verdict.LIMIT, Verdict.REGRESSION, Verdict.INVALID)

    @property
    def checked(self) -> bool:
        """Whether there was something to check against."""
        return self.verdict is not Verdict.NOT_CHECKED
