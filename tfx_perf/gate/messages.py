"""Texts about a decision for people: its headline, remedies, and lines for a terminal."""

import decimal
import shlex
from collections.abc import Iterator, Sequence

from tfx_perf.config.rule import REGRESSION_TOLERANCES, Rule
from tfx_perf.core import cache_key, formatting, metrics
from tfx_perf.gate import run as run_lib
from tfx_perf.gate.baseline import Case
from tfx_perf.gate.decision import GateRecord, Remedy, RuleResult, Verdict, remedies, to_answer
from tfx_perf.gate.run import Run
from tfx_perf.training import scaling

_PEAK, _CPU_TIME = "peak_flops_per_second", "step_cpu_time_seconds"
# A machine is slower below this share of the lowest peak; its peaks differ by a few percent.
_SLOWER = 0.8
# No larger tolerance is suggested: such a gate would tolerate everything.
_LARGEST_MARGIN = 1.0
_MOST_TIMES_AS_LONG = 100  # the longest training to suggest, as a multiple of this one
_DIGITS = 2
_BLESS = "if the run is good, bless it"
_LEADING = (
    "step_time_seconds", "examples_per_second", "training_memory_bytes", "train_loss",
    "validation_loss", "cost_per_million_examples",
)  # fmt: skip
_MOST_REFUSALS = 5


def headline(outcomes: Sequence[RuleResult], case: Case) -> str:
    """Returns the decision and its grounds; says first if no blessed run is comparable."""
    sentences = [_decision(outcomes)]
    if any(
        item.refuses and (item.may_be_settled or item.verdict is Verdict.REGRESSION)
        for item in outcomes
    ):
        sentences += _circumstances(case.candidate, case.compared)
    compared = [item.metric for item in outcomes if item.kind == "change" and item.checked]
    if outcomes and case.differences and case.candidate.environment:
        fields = cache_key.describe(case.differences)
        rest = "quality and absolute limits only" if compared else "absolute limits only"
        incomparable = f"Not comparable with any blessed run ({fields}): {rest}."
        sentences = [incomparable, *sentences]
    elif outcomes:
        sentences.append(_compared_with(case, compared))
    unread = case.settings.unruled(case.candidate.evaluation)
    if unread:
        sentences.append(
            f"Not judged, since their direction is unknown: {', '.join(unread)}. Set it to "
            f"higher or lower: gate.rules: {{{unread[0]}: {{direction: higher, tolerance: 0.02}}}}."
        )
    return " ".join(sentences)


def _decision(outcomes: Sequence[RuleResult]) -> str:
    if not outcomes:
        return "Refused: the gate has no rule, so nothing was checked."
    count = formatting.counted(len(outcomes), "check")
    checked = sum(item.checked for item in outcomes)
    refusals = [outcome for outcome in outcomes if outcome.refuses]
    if refusals:
        first = refusals[0]
        if first.verdict is Verdict.INCOMPARABLE:  # some of these say more
            first = next((item for item in refusals if item.is_far_worse), first)
        sentence = f"{first.metric} ({first.verdict.value}): {first.reason}"
        return f"Refused by {len(refusals)} of {count}. {sentence}"
    if not checked:
        return f"Blessed without checks: none of {count} applies yet."
    decision = f"Blessed: {checked} of {count} could be made, and none refused."
    for heading, listed in (
        (
            "Advisory rules not met",
            [item for item in outcomes if item.checked and item.verdict is not Verdict.PASS],
        ),
        (
            "Not comparable with a blessed run",
            [item for item in outcomes if item.verdict is Verdict.INCOMPARABLE],
        ),
    ):
        if listed:
            names = dict.fromkeys(item.metric for item in listed)
            decision += f" {heading}: {', '.join(names)}."
    return decision


def _circumstances(candidate: Run, baseline: Sequence[Run]) -> Iterator[str]:
    """Yields what changed since the last blessed run and may have slowed steps."""
    last = baseline[-1] if baseline else None
    if last and candidate.conditions and last.conditions:
        differing = cache_key.differences(last.conditions, candidate.conditions)
        changed = [words for name, words in run_lib.CONDITIONS.items() if name in differing]
        known = [words for name, words in run_lib.CONDITIONS.items() if name in last.conditions]
        verb = "Changed" if changed else "Unchanged"
        yield f"{verb} since blessed run {last.run_id}: {', '.join(changed or known)}."
    if last and candidate.plan and last.plan and candidate.plan != last.plan:
        yield (
            f"It was trained with the plan {candidate.plan}, "
            f"blessed run {last.run_id} with {last.plan}."
        )
        if candidate.budget_lack:
            yield f"Its trials used up their budget: {candidate.budget_lack}."
    cpu_times = [run.figure(_CPU_TIME) for run in (candidate, last) if run]
    if last and None not in cpu_times:
        now, then = map(formatting.format_seconds, cpu_times)
        yield f"A step took {now} of CPU time, in blessed run {last.run_id} {then}."
    if peaks := _slower_peaks(candidate, baseline):
        peak, lowest = (f"{each / 1e9:.3g}" for each in peaks)
        yield (
            f"The machine was slower: a matrix product ran at {peak} GFLOP/s, in the blessed "
            f"runs at no less than {lowest}."
        )


def _compared_with(case: Case, compared: Sequence[str]) -> str:
    count = len(case.compared)
    if case.differences:
        return "Nothing was recorded of this run, so it cannot be compared."
    of_evaluator = [metric for metric in compared if case.candidate.gain(metric) is not None]
    if not count and of_evaluator:
        return f"Compared with Evaluator's baseline model: {', '.join(of_evaluator)}."
    if not count:
        return "No baseline yet: only absolute limits were checked."
    sentence = f"Compared with {formatting.counted(count, 'blessed run')}"
    if count == 1:
        return f"{sentence}."
    return f"{sentence}: figures with their mean since the last change, counters with the last."


def _slower_peaks(candidate: Run, baseline: Sequence[Run]) -> tuple[float, float] | None:
    """Returns this run's FLOP/s and the blessed runs' lowest; None if not lower, as on any GPU."""
    here = candidate.figure(_PEAK)
    known = [peak for run in baseline if (peak := run.figure(_PEAK)) is not None]
    if here is None or not known or here >= _SLOWER * min(known):
        return None
    return here, min(known)


def remedy(outcome: RuleResult, rule: Rule, *, results: Sequence[RuleResult], case: Case) -> Remedy:
    """Returns the setting behind a refusal, its value, and advice for all answers to its rule."""
    setting, value, words = _suggested(outcome, rule, results=results, case=case)
    is_slower = bool(_slower_peaks(case.candidate, case.compared))
    is_doubtful = (outcome.verdict is Verdict.INCONCLUSIVE or is_slower) and outcome.may_be_settled
    if is_doubtful and case.candidate.is_of_script:
        words += "; run the script again while the machine does no other work"
    return Remedy(setting=setting, value=value, suggestion=words)


def _suggested(
    outcome: RuleResult, rule: Rule, *, results: Sequence[RuleResult], case: Case
) -> tuple[str, str, str]:
    of_key, settings = f"gate.rules.{outcome.metric}", case.settings
    of_rule = [item for item in results if item.metric == outcome.metric]
    if outcome.verdict is Verdict.LIMIT:
        value = outcome.value or 0.0  # a figure beyond a limit is known
        is_max = rule.min is None or value >= rule.min
        bound = _rounded(value, up=is_max)
        lowest, highest = metrics.lookup(outcome.metric).bounds
        # A bound that every value passes is no limit.
        can_fire = float(bound) < highest if is_max else float(bound) > lowest
        words = f"{bound} would let this run pass"
        name, limit = ("max", rule.max) if is_max else ("min", rule.min)
        words = words if can_fire else "with advisory: true it is only reported"
        return f"{of_key}.{name}", f"{limit:g}", words
    if outcome.verdict is Verdict.REGRESSION:
        words = "if the change is intended, bless the run"
        if metrics.lookup(outcome.metric).unit == "loss":
            seed = "seed the script" if case.candidate.is_of_script else "set training.seed"
            words += f"; if it is chance, {seed}"
        # Any rise of a deterministic counter is a real change.
        if not metrics.lookup(outcome.metric).is_deterministic:
            words += _tolerating(rule, of_rule)
        return f"{of_key}.tolerance", f"{rule.tolerance:g}", words
    if outcome.verdict is Verdict.INCONCLUSIVE:
        how = "longer or on a quieter machine"
        short = [
            item.shortness
            for item in results
            if item.shortness and item.verdict is Verdict.INCONCLUSIVE
            and not case.rules[item.metric].advisory
        ]  # fmt: skip
        longest = max(short, key=lambda item: item.factor, default=None)
        if outcome.shortness and longest and longest.factor <= _MOST_TIMES_AS_LONG:
            how = f"{_rounded(longest.factor, up=True)} times as long"
            if any(item.is_of_baseline for item in short):
                how += " and bless the first such run"
        words = f"train {how}{_tolerating(rule, of_rule)}"
        return f"{of_key}.tolerance", f"{rule.tolerance:g}", words
    if outcome.verdict is Verdict.INCOMPARABLE:
        words = f"{_BLESS}, and it starts a new baseline"
        return "gate.policy.incomparable", repr(settings.policy.incomparable), words
    if outcome.verdict is Verdict.NO_BASELINE:
        words = f"{_BLESS}, and the next one is compared with it"
        return "gate.policy.no_baseline", repr(settings.policy.no_baseline), words
    if outcome.metric in (*case.candidate.impossible, *case.candidate.not_finite):
        words = "find out where such a figure comes from, and train again"
        return "gate.policy.invalid", repr(settings.policy.invalid), words
    if outcome.value is not None:
        words = "train for more steps, or lower this setting"
        return "gate.minimum_steps", f"{settings.minimum_steps}", words
    words = "find out why the figure is missing; true in your rule accepts that"
    given = settings.rules.get(outcome.metric)
    return f"{of_key}.optional", f"{bool(given and given.optional)}".lower(), words


def _tolerating(rule: Rule, outcomes: Sequence[RuleResult]) -> str:
    """Returns the tolerance and max_regression that let the run pass; empty if there are none."""
    changes = [item for item in outcomes if item.kind == "change"]
    drifts = [item for item in outcomes if item.kind == "drift"]
    if any(item.change is None for item in (*changes, *drifts)):
        return ""
    # Within the tolerance a run may still be so uncertain that it could be beyond max_regression,
    # and all changes together have to be within max_regression, too.
    tolerance = max([rule.smallest_change, *(_worse(item, rule, item.change) for item in changes)])
    max_regression = max(
        [tolerance]
        + [max(_worse(item, rule, item.change_low), _worse(item, rule, item.change_high))
           for item in changes if item.change_low is not None]
        + [_worse(item, rule, item.change) for item in drifts]
    )  # fmt: skip
    if rule.max_regression is None:
        crept = [_worse(item, rule, item.change) / (item.tolerance or 1.0) for item in drifts]
        tolerance = max(tolerance, max_regression / REGRESSION_TOLERANCES,
                        *(rule.smallest_change * each for each in crept))  # fmt: skip
    shown = _rounded(tolerance, up=True)
    if float(shown) >= _LARGEST_MARGIN:
        return ""
    fields = f"tolerance: {shown}"
    if rule.max_regression is not None:
        needed = _rounded(max_regression, up=True)
        fields += f", max_regression: {max(needed, shown, f'{rule.max_regression:g}', key=float)}"
    return f"; the rule {{{fields}}} would let it pass"


def _worse(outcome: RuleResult, rule: Rule, change: float | None) -> float:
    return rule.worse_sign(outcome.metric) * (change or 0.0)


def _rounded(value: float, *, up: bool) -> str:
    exact = decimal.Decimal(repr(float(value)))
    if not exact:
        return "0"
    unit = decimal.Decimal(1).scaleb(exact.adjusted() - _DIGITS + 1)
    rounding = decimal.ROUND_CEILING if up else decimal.ROUND_FLOOR
    return f"{float((exact / unit).to_integral_value(rounding) * unit):g}"


def lines(
    decision: GateRecord, *, run_to_bless: str | None = None, database: str = ""
) -> Iterator[str]:
    """Yields the decision; then the figures, and for a refusal the reasons and what to do."""
    run = decision.candidate
    yield decision.headline
    figures = ", ".join(_figures(decision))
    if figures:
        yield f"  {figures}"
    if decision.blessed and decision.ab_rerun:  # a refused run's reasons include it
        yield f"  {decision.ab_rerun.answer(decision.verdict)}"
    speedup = run.figure("replica_speedup_ratio")
    if speedup is not None and 0 < speedup < scaling.SURELY_SLOWER:
        whose = "the training's" if run.is_of_script else "OptimizedTrainer's"
        yield (
            f"  {formatting.compared_speed(speedup)} the last run on one replica: "
            f"{whose} report says why, and what to do"
        )
    refusals = to_answer(outcome for outcome in decision.outcomes if outcome.refuses)
    advice = remedies(refusals)
    for outcome in refusals[:_MOST_REFUSALS]:
        if outcome is not refusals[0]:  # the headline has the first
            yield f"  {outcome.metric} ({outcome.verdict.value}): {outcome.reason}"
        if outcome.remedy and advice[outcome.remedy][0] is outcome:
            yield f"  Remedy: {outcome.remedy}"
    if refusals[_MOST_REFUSALS:]:
        yield f"  and {len(refusals) - _MOST_REFUSALS} more, see the report"
    if refusals:
        node = f" --node {run.node}" if run.node else ""  # a pipeline may have several gates
        recorded = shlex.quote(database) if database else "DB"
        which = run_to_bless or f"{run.run_id}{node} --reason TEXT --source {recorded}"
        yield f"  To accept this run anyway: tfx-perf bless {which}"


def _figures(decision: GateRecord) -> Iterator[str]:
    """Yields e.g. `step time 258 µs (-0.8%)`, the change where there was a comparison."""
    compared = {item.metric: item for item in decision.outcomes if item.kind == "change"}
    for key in _LEADING:
        value = decision.candidate.figure(key)
        if value is not None:
            shown = f"{formatting.label(key)} {formatting.format_value(key, value)}"
            yield f"{shown}{_change(compared.get(key))}"


def _change(outcome: RuleResult | None) -> str:
    if outcome is None or outcome.from_baseline is None:
        return ""
    change = outcome.from_baseline.value
    if change > 1 and (outcome.baseline or 0) > 0:
        return f" ({1 + change:.1f} times)"
    return f" ({formatting.signed_percent(change)}%)"
