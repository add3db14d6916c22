"""What lets a refused run pass, where it should: the setting that decides, and to what."""

import decimal
from collections.abc import Callable, Sequence

from tfx_perf import metrics
from tfx_perf.gate.circumstances import Circumstances
from tfx_perf.gate.outcome import Outcome, Remedy, Verdict
from tfx_perf.gate.remeasured import Remeasured
from tfx_perf.settings.gate import GateSettings
from tfx_perf.settings.rule import BUDGET_MARGINS, Rule

# A gate that tolerates more tolerates everything.
_LARGEST_MARGIN = 1.0
_MOST_TIMES_AS_LONG = 100  # which somebody may still do
_DIGITS = 2
_BLESS = "if the run is good, bless it"
_REPORT_ONLY = "with advisory: true it is only reported"


def remedy(
    outcome: Outcome,
    rule: Rule,
    *,
    settings: GateSettings,
    outcomes: Sequence[Outcome],
    circumstances: Circumstances,
) -> Remedy:
    """Returns what would let a run pass.

    Args:
        outcome: which refuses.
        rule: that it is the answer to.
        settings: the gate's.
        outcomes: all answers to that rule, which one setting has to satisfy.
        circumstances: of the run.
    """
    found = _REMEDIES[outcome.verdict](outcome, rule, settings, outcomes)
    is_doubtful = outcome.verdict is Verdict.INCONCLUSIVE or circumstances.is_slower_machine
    if not (is_doubtful and Remeasured.may_settle(outcome)):
        return found
    if circumstances.candidate.is_of_script:
        words = "run the script again while the machine does no other work"
    elif not settings.escalate_seconds:
        words = "with gate.escalate_seconds it is measured again beside a blessed run"
    else:
        return found
    return found.model_copy(update={"suggestion": f"{found.suggestion}; {words}"})


def _limit(
    outcome: Outcome, rule: Rule, settings: GateSettings, outcomes: Sequence[Outcome]
) -> Remedy:
    lowest, highest = metrics.lookup(outcome.metric).bounds
    value = outcome.value or 0.0  # what is beyond a limit is known
    is_max = rule.min is None or value >= rule.min
    bound = _rounded(value, up=is_max)
    # Where every value would pass, there is no such limit.
    can_fire = float(bound) < highest if is_max else float(bound) > lowest
    words = f"{bound} would let this run pass" if can_fire else _REPORT_ONLY
    return _of_rule(outcome, "max" if is_max else "min", rule.max if is_max else rule.min, words)


def _regression(
    outcome: Outcome, rule: Rule, settings: GateSettings, outcomes: Sequence[Outcome]
) -> Remedy:
    words = "if the change is meant, bless the run"
    # A counter that rises at all has changed.
    if not metrics.lookup(outcome.metric).is_deterministic:
        words += _tolerating(rule, outcomes)
    return _of_rule(outcome, "margin", rule.margin, words)


def _inconclusive(
    outcome: Outcome, rule: Rule, settings: GateSettings, outcomes: Sequence[Outcome]
) -> Remedy:
    how = "longer or on a quieter machine"
    if outcome.shortness and outcome.shortness.factor <= _MOST_TIMES_AS_LONG:
        how = f"{_rounded(outcome.shortness.factor, up=True)} times as long"
        if outcome.shortness.is_of_baseline:
            how += " and bless the first such run"
    words = f"train {how}{_tolerating(rule, outcomes)}"
    return _of_rule(outcome, "margin", rule.margin, words)


def _invalid(
    outcome: Outcome, rule: Rule, settings: GateSettings, outcomes: Sequence[Outcome]
) -> Remedy:
    if outcome.lowest is not None or outcome.highest is not None:
        return Remedy(
            setting="gate.policy.invalid",
            value=repr(settings.policy.invalid),
            suggestion="find out what wrote such a figure, and train again",
        )
    if outcome.value is not None:
        words = "train for more steps, or lower it"
        return Remedy(setting="gate.minimum_steps", value=f"{settings.minimum_steps}",
                      suggestion=words)  # fmt: skip
    words = "find out why the figure is missing; with true in a rule of yours it may be"
    own = settings.rules.get(outcome.metric)
    return _of_rule(outcome, "optional", bool(own and own.optional), words)


def _not_comparable(
    outcome: Outcome, rule: Rule, settings: GateSettings, outcomes: Sequence[Outcome]
) -> Remedy:
    return Remedy(
        setting="gate.policy.not_comparable",
        value=repr(settings.policy.not_comparable),
        suggestion=f"{_BLESS}, and it begins a baseline of its own",
    )


def _not_compared(
    outcome: Outcome, rule: Rule, settings: GateSettings, outcomes: Sequence[Outcome]
) -> Remedy:
    return Remedy(
        setting="gate.policy.not_compared",
        value=repr(settings.policy.not_compared),
        suggestion=f"{_BLESS}, and the next one is compared with it",
    )


_REMEDIES: dict[
    Verdict, Callable[[Outcome, Rule, GateSettings, Sequence[Outcome]], Remedy]
] = {
    Verdict.LIMIT: _limit,
    Verdict.REGRESSION: _regression,
    Verdict.INCONCLUSIVE: _inconclusive,
    Verdict.INVALID: _invalid,
    Verdict.NOT_COMPARABLE: _not_comparable,
    Verdict.NOT_COMPARED: _not_compared,
}


def _tolerating(rule: Rule, outcomes: Sequence[Outcome]) -> str:
    """Returns the margin, and the budget where the rule has its own, that let the run pass.

    Empty where they would tolerate everything, or where a baseline of 0 has no share to rise by.
    """
    changes = [item for item in outcomes if item.kind == "change"]
    drifts = [item for item in outcomes if item.kind == "drift"]
    if any(item.change is None for item in (*changes, *drifts)):
        return ""
    # Within the margin a run may still be so uncertain that it could be beyond the budget, and
    # all changes together have to be within the budget, too.
    margin = max([rule.smallest_change, *(_worse(item, rule, item.change) for item in changes)])
    budget = max(
        [margin]
        + [max(_worse(item, rule, item.change_low), _worse(item, rule, item.change_high))
           for item in changes if item.change_low is not None]
        + [_worse(item, rule, item.change) for item in drifts]
    )  # fmt: skip
    if rule.budget is None:
        margin = max(margin, budget / BUDGET_MARGINS)
    shown = _rounded(margin, up=True)
    if float(shown) >= _LARGEST_MARGIN:
        return ""
    fields = f"margin: {shown}"
    if rule.budget is not None:
        larger = max(_rounded(budget, up=True), shown, f"{rule.budget:g}", key=float)
        fields += f", budget: {larger}"
    return f"; the rule {{{fields}}} would let it pass"


def _worse(outcome: Outcome, rule: Rule, change: float | None) -> float:
    """Returns by how much a change is for the worse; 0 of one that is not known."""
    is_lower_better = rule.direction_of(outcome.metric) is metrics.Direction.LOWER
    return (change or 0.0) if is_lower_better else -(change or 0.0)


def _of_rule(outcome: Outcome, field: str, value: float | bool | None, words: str) -> Remedy:
    shown = f"{value}".lower() if isinstance(value, bool) else f"{value:g}"
    setting = f"gate.rules.{outcome.metric}.{field}"
    return Remedy(setting=setting, value=shown, suggestion=words)


def _rounded(value: float, *, up: bool) -> str:
    """Returns a number of two digits that is no less, or no more."""
    exact = decimal.Decimal(repr(float(value)))
    if not exact:
        return "0"
    unit = decimal.Decimal(1).scaleb(exact.adjusted() - _DIGITS + 1)
    rounding = decimal.ROUND_CEILING if up else decimal.ROUND_FLOOR
    return f"{float((exact / unit).to_integral_value(rounding) * unit):g}"
