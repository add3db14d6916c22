"""What lets a refused run pass, where it should: the setting that decides, and to what."""

import math
from collections.abc import Callable

from tfx_perf import metrics
from tfx_perf.gate.outcome import Outcome, Remedy, Verdict
from tfx_perf.settings.gate import GateConfig
from tfx_perf.settings.rule import BUDGET_MARGINS, Rule

# A gate that tolerates more tolerates everything.
_LARGEST_MARGIN = 1.0
_BLESS = "if the run is good, bless it"


def remedy(outcome: Outcome, rule: Rule, settings: GateConfig) -> Remedy:
    """Returns what would let a run pass.

    Args:
        outcome: which refuses.
        rule: that it is the answer to.
        settings: the gate's.
    """
    return _REMEDIES[outcome.verdict](outcome, rule, settings)


def _limit(outcome: Outcome, rule: Rule, settings: GateConfig) -> Remedy:
    field, value = "max", rule.max
    if rule.min is not None and outcome.value < rule.min:
        field, value = "min", rule.min
    bound = _rounded(outcome.value, up=field == "max")
    return _of_rule(outcome, field, value, f"{bound} would let this run pass")


def _regression(outcome: Outcome, rule: Rule, settings: GateConfig) -> Remedy:
    words = "if the change is meant, bless the run"
    if outcome.kind == "drift":
        if outcome.change is not None and abs(outcome.change) < _LARGEST_MARGIN:
            words += f"; {_share(outcome.change)} lets such runs pass"
        return _of_rule(outcome, "budget", rule.largest_change, words)
    # A counter that rises at all has changed, and what was 0 has no share to rise by.
    if outcome.change is not None and not metrics.lookup(outcome.metric).is_deterministic:
        worst = abs(_worst(outcome, rule))
        # Within the margin a run may still be so uncertain that it could be beyond the budget.
        needed = max(abs(outcome.change), worst / BUDGET_MARGINS if rule.budget is None else 0)
        if needed < _LARGEST_MARGIN:
            words += f"; {_share(needed)} lets such runs pass"
            if rule.budget is not None and worst > rule.budget:
                words += f", with a budget of {_share(worst)}"
    return _of_rule(outcome, "margin", rule.margin, words)


def _inconclusive(outcome: Outcome, rule: Rule, settings: GateConfig) -> Remedy:
    words = "train longer or on a quieter machine"
    if outcome.change is not None:
        words += f"; {_share(_worst(outcome, rule))} would let this run pass"
    if outcome.metric in metrics.STEP_TIME_EXPONENTS and not settings.escalate_seconds:
        words += "; with gate.escalate_seconds it is measured again beside a blessed run"
    return _of_rule(outcome, "budget", rule.largest_change, words)


def _invalid(outcome: Outcome, rule: Rule, settings: GateConfig) -> Remedy:
    if outcome.value is not None:
        words = "train for more steps, or lower it"
        return Remedy(setting="gate.minimum_steps", value=f"{settings.minimum_steps}",
                      suggestion=words)  # fmt: skip
    words = "find out why the figure is missing; with true the rule does without it"
    return _of_rule(outcome, "optional", rule.optional, words)


def _not_comparable(outcome: Outcome, rule: Rule, settings: GateConfig) -> Remedy:
    return Remedy(
        setting="gate.policy.not_comparable",
        value=repr(settings.policy.not_comparable),
        suggestion=f"{_BLESS}, and it begins a baseline of its own",
    )


def _not_compared(outcome: Outcome, rule: Rule, settings: GateConfig) -> Remedy:
    return Remedy(
        setting="gate.policy.not_compared",
        value=repr(settings.policy.not_compared),
        suggestion=f"{_BLESS}, and the next one is compared with it",
    )


_REMEDIES: dict[Verdict, Callable[[Outcome, Rule, GateConfig], Remedy]] = {
    Verdict.LIMIT: _limit,
    Verdict.REGRESSION: _regression,
    Verdict.INCONCLUSIVE: _inconclusive,
    Verdict.INVALID: _invalid,
    Verdict.NOT_COMPARABLE: _not_comparable,
    Verdict.NOT_COMPARED: _not_compared,
}


def _of_rule(outcome: Outcome, field: str, value: float | bool | None, words: str) -> Remedy:
    shown = f"{value}".lower() if isinstance(value, bool) else f"{value:g}"
    setting = f"gate.rules.{outcome.metric}.{field}"
    return Remedy(setting=setting, value=shown, suggestion=words)


def _worst(outcome: Outcome, rule: Rule) -> float:
    """Returns the end of the change's interval that is worse."""
    is_lower_better = rule.direction_of(outcome.metric) is metrics.Direction.LOWER
    return outcome.change_high if is_lower_better else outcome.change_low


def _share(change: float) -> str:
    """Returns a margin or budget that a change is within."""
    return _rounded(abs(change), up=True)


def _rounded(value: float, *, up: bool) -> str:
    """Returns a number of two digits that is no less, or no more."""
    if not value:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    count = math.ceil(value / unit) if up else math.floor(value / unit)
    return f"{count * unit:g}"
