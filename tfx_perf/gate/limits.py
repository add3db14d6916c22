"""The absolute limits."""

from tfx_perf import formatting, metrics
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
        reason = f"{shown(value)} is below the minimum {shown(rule.min)}."
    elif rule.max is not None and value > rule.max:
        reason = f"{shown(value)} is above the maximum {shown(rule.max)}."
    else:
        verdict, reason = Verdict.PASS, f"{shown(value)} is within the limits."
    if metrics.lookup(key).unit == "flag":  # `yes` and `no` are no amounts
        passes = verdict is Verdict.PASS
        wanted = "as it has to be" if passes else f"and has to be {shown(1 - value)}"
        reason = f"The answer is {shown(value)}, {wanted}."
    return Outcome(
        metric=key,
        kind="limit",
        verdict=verdict,
        reason=reason,
        value=value,
        lowest=rule.min,
        highest=rule.max,
    )
