"""The absolute limits."""

from tfx_perf import formatting
from tfx_perf.gate.outcome import Outcome, Verdict
from tfx_perf.settings.rule import Rule


def check(key: str, value: float, *, rule: Rule) -> Outcome:
    """Checks a figure against absolute bounds, which are inclusive.

    Args:
        key: the metric.
        value: this run's figure in the metric's unit.
        rule: with `min`, `max` or both.
    """

    def shown(bound: float) -> str:
        return formatting.format_value(key, bound)

    verdict = Verdict.LIMIT
    if rule.min is not None and value < rule.min:
        reason = f"below the minimum {shown(rule.min)}"
    elif rule.max is not None and value > rule.max:
        reason = f"above the maximum {shown(rule.max)}"
    else:
        verdict, reason = Verdict.PASS, "within the limits"
    return Outcome(
        metric=key,
        kind="limit",
        verdict=verdict,
        reason=f"{shown(value)} is {reason}.",
        value=value,
        lowest=rule.min,
        highest=rule.max,
    )
