"""What a rule says about a run."""

import enum
import math
from typing import Literal

from tfx_perf import metrics, records, statistics
from tfx_perf.gate.shortness import Shortness


class Verdict(str, enum.Enum):
    """A rule's answer. What each does is up to `tfx_perf.settings.policy.Policy`."""

    PASS = "pass"
    LIMIT = "limit"
    REGRESSION = "regression"
    INCONCLUSIVE = "inconclusive"
    INVALID = "invalid"
    NOT_COMPARED = "not compared"
    NOT_COMPARABLE = "not comparable"
    NOT_CHECKED = "not checked"


class Remedy(records.Record):
    """What would let a run pass that a rule refuses.

    Attributes:
        setting: that decides, e.g. `gate.rules.step_time_seconds.margin`.
        value: what it is.
        suggestion: what to do, in a sentence without its full stop.
    """

    setting: str
    value: str
    suggestion: str

    def __str__(self) -> str:
        """In a sentence."""
        return f"{self.setting} is {self.value}: {self.suggestion}."


class Outcome(records.Record):
    """A rule's answer with the figures it rests on, in the metric's unit.

    Changes are relative to the baseline, or to the rule's `scale` where that is larger.

    Attributes:
        metric: see `tfx_perf.metrics.lookup`.
        kind: `limit` (absolute bounds), `change` (against the last blessed runs) or `drift`
            (against the anchor).
        verdict: the answer.
        reason: the answer in a sentence.
        refuses: whether the run may not be blessed for it; set by the gate's policy.
        advisory: whether the rule only reports.
        value: this run's figure; None if there is none.
        baseline: what it was compared with; None if with nothing. Of a figure that is not
            comparable: the last blessed runs', if it is far worse; see `unexplained`.
        change: relative change from the baseline, e.g. 0.1 for 10 % more.
        change_low: lower end of the change's 90 % interval.
        change_high: upper end.
        margin: the relative change for the worse that is never called a regression.
        lowest: the smallest value that passes; None if any small value does.
        highest: the largest value that passes; None if any large value does.
        detectable: the smallest change for the worse that is called a regression in four of
            five runs.
        shortness: how much longer trainings would decide; None if it is decided, or if they would
            not.
        remedy: what would let the run pass; None if the rule does not refuse.
    """

    metric: str
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
    margin: float | None = None
    lowest: float | None = None
    highest: float | None = None
    detectable: float | None = None
    shortness: Shortness | None = None
    remedy: Remedy | None = None

    @property
    def from_baseline(self) -> statistics.Interval | None:
        """The change and its interval as shares of the baseline, whatever changes count by.

        As `change` has them where the baseline is not above 0; None if nothing was compared. What
        cannot be below 0 cannot fall by more than all of it.
        """
        if self.change is None:
            return None
        low, high = (
            self.change if end is None else end for end in (self.change_low, self.change_high)
        )
        if self.value is None or self.baseline is None or self.baseline <= 0 or not self.change:
            return statistics.Interval(value=self.change, low=low, high=high)
        factor = (self.value / self.baseline - 1) / self.change
        least = -1.0 if metrics.lookup(self.metric).bounds[0] >= 0 else -math.inf
        return statistics.Interval(
            value=factor * self.change,
            low=max(least, factor * low),
            high=max(least, factor * high),
        )

    @property
    def is_far_worse(self) -> bool:
        """Whether it is not comparable, and too bad to be blessed unseen; see `unexplained`."""
        return self.verdict is Verdict.NOT_COMPARABLE and self.change is not None

    @property
    def checked(self) -> bool:
        """Whether there was something to check and to check against."""
        return self.verdict not in (
            Verdict.NOT_CHECKED, Verdict.NOT_COMPARED, Verdict.NOT_COMPARABLE,
        )  # fmt: skip
