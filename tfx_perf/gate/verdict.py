"""The decision on a run: every rule, then one answer."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from tfx_perf.config.gate import GateSettings, Policy
from tfx_perf.config.rule import DERIVED, PRIMARY, Rule
from tfx_perf.core import errors, formatting, metrics
from tfx_perf.gate import baseline, drift, messages, noise
from tfx_perf.gate import run as run_lib
from tfx_perf.gate.baseline import Case
from tfx_perf.gate.change import Change, beside_step_time
from tfx_perf.gate.decision import AbRerun, GateRecord, RuleResult, Verdict
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.run import Run

# Figures over the steps of a training, which mean nothing after only a few steps.
PER_STEP = frozenset({
    "step_time_seconds", "step_time_p90_seconds", "step_time_p99_seconds",
    "step_cpu_time_seconds", "examples_per_second", "achieved_flops_per_second", "mfu_ratio",
    "cost_per_million_examples",
})  # fmt: skip
# Figures of the training process, which computes nothing when there are parameter servers.
_PER_PROCESS = frozenset(("training_memory_bytes",))

# Largest ratio of the sizes of two models that are measured in turns: less than the tolerance.
_ALIKE = 1.02


def evaluate(
    candidate: Run, *, ledger: Ledger, settings: GateSettings, ab_rerun: AbRerun | None = None
) -> GateRecord:
    """Decides whether a run may be pushed; see docs/gate.md.

    It is blessed if no rule refuses. Without recorded runs, limits and missing figures decide, and
    `policy.no_baseline`. A gate without any rule blesses nothing. The same
    arguments always give the same decision. The candidate's own training in the ledger does not
    count.
    """
    _check_reference_run(settings.reference_run, ledger, candidate=candidate)
    case = Case(candidate, ledger.without(candidate), settings)
    results, changes, host_factor = _answers(case)
    if ab_rerun:
        results = [
            ab_rerun.settle(item, case.rules[item.metric], baseline=case.compared)
            if item.may_be_settled and not _has_stalls(item.metric, case)
            else item
            for item in results
        ]
    of_changes = {item.metric: item for item in results if item.kind == "change"}
    results = [beside_step_time(item, changes, leader=of_changes.get(PRIMARY)) for item in results]
    quality_holds = any(
        item.kind == "change"
        and item.verdict is Verdict.PASS
        and not case.rules[item.metric].advisory
        and noise.kind(item.metric) is noise.Kind.QUALITY
        for item in results
    )
    outcomes = []
    for outcome in results:
        rule, remedy = case.rules[outcome.metric], None
        refuses = not rule.advisory and _refuses(
            settings.policy, outcome, quality_holds=quality_holds
        )
        if refuses:
            remedy = messages.remedy(outcome, rule, results=results, case=case)
        update = {"refuses": refuses, "advisory": rule.advisory, "remedy": remedy}
        outcomes.append(outcome.model_copy(update=update))
    return GateRecord(
        blessed=bool(outcomes) and not any(outcome.refuses for outcome in outcomes),
        headline=messages.headline(outcomes, case),
        outcomes=tuple(outcomes),
        candidate=candidate,
        baseline_runs=case.compared,
        differences=case.differences,
        false_alarm_rate=settings.false_alarm_rate,
        host_factor=host_factor,
        unread=settings.unruled(candidate.evaluation),
        ab_rerun=ab_rerun,
    )


def decide(
    candidate: Run,
    *,
    ledger: Ledger,
    settings: GateSettings,
    measure: Callable[[Sequence[Run]], AbRerun],
) -> GateRecord:
    """Decides as `evaluate` does, after measuring a doubtful run in turns with blessed ones.

    `measure` takes the last of some runs that can be trained. Drift, which alone refuses once a
    machine has become slower for good, can only be settled by a run from before.
    """
    judge = functools.partial(evaluate, candidate, ledger=ledger, settings=settings)
    decision, ab_rerun = judge(), AbRerun()
    if not (settings.rerun_seconds and decision.may_be_settled):
        return decision
    last = _fastest_last(decision.baseline_runs, candidate)
    if decision.reference_run is None:
        ab_rerun = measure(last)
        decision = judge(ab_rerun=ab_rerun)
    if decision.reference_run is None or not decision.may_be_settled:
        return decision
    known = ledger.of_node(candidate)
    reference = [run for run in known if run.run_id == decision.reference_run]
    since = measure(_fastest_last(reference, candidate))
    if since.ratio is None and ab_rerun.ratio is None:
        return judge(ab_rerun=measure(last))
    update = {"reference_run": since.against, "reference_ratio": since.ratio}
    return judge(ab_rerun=ab_rerun.model_copy(update=update))


def _has_stalls(key: str, case: Case) -> bool:
    """Whether a mean is worse beside the steps' median, which turns show, than in blessed runs."""
    if key not in DERIVED:
        return False

    def beside_steps(run: Run) -> float:
        figure, step = run.figure(key) or math.nan, run.figure(PRIMARY) or math.nan
        return figure ** metrics.STEP_TIME_EXPONENTS[key] / step

    usual = np.nanmedian([beside_steps(run) for run in case.compared])
    return not beside_steps(case.candidate) <= (1 + case.rules[key].smallest_change) * usual


def _fastest_last(runs: Sequence[Run], candidate: Run) -> list[Run]:
    """Returns the runs of the candidate's model size, the fastest last.

    A slow run that was blessed by luck must not be the measure of later ones.
    """
    alike = [
        run
        for run in runs
        if not run_lib.differences(run.environment, candidate.environment, size_ratio=_ALIKE)
    ]
    return sorted(alike, key=lambda run: -(run.figure(PRIMARY) or math.inf))


def _answers(case: Case) -> tuple[list[RuleResult], dict[str, Change], float]:
    """Returns each rule's own answers, the comparisons, and the host's factor for times."""
    candidate, settings = case.candidate, case.settings
    problems = {
        key: _impossible(key, candidate) or _problem(key, rule, case)
        for key, rule in case.rules.items()
    }
    judged = {
        key: rule
        for key, rule in case.rules.items()
        if rule.tolerance is not None and not problems[key]
    }
    changes, host_factor = baseline.changes(judged, case)
    # Small deteriorations over each day's baseline model add up: drift compares the metrics.
    gain_rules = {key: rule for key, rule in judged.items() if candidate.gain(key) is not None}
    without_gains = candidate.model_copy(update={"evaluation_gains": {}})
    metric_changes, _ = baseline.changes(gain_rules, Case(without_gains, case.ledger, settings))
    since_anchor = {**changes, **dict.fromkeys(gain_rules), **metric_changes}
    tested = [key for key, change in changes.items() if change.is_tested]
    p_values = [changes[key].p_value for key in tested]
    holm = noise.holm_levels(p_values, rate=settings.false_alarm_rate)
    levels = dict(zip(tested, holm, strict=True))
    smallest_level = min(holm, default=settings.false_alarm_rate)
    results: list[RuleResult] = []
    for key, rule in case.rules.items():
        if problem := problems[key]:
            results.append(problem)
            continue
        value = candidate.figure(key)
        if value is not None and (rule.min is not None or rule.max is not None):
            results.append(_check_limits(key, value, rule=rule))
        if key in changes:
            level = levels.get(key, smallest_level)
            results.append(changes[key].outcome(level=level, smallest_level=smallest_level))
            if since := since_anchor[key]:
                results += drift.drift(since, pinned=settings.reference_run, level=smallest_level)
        elif rule.tolerance is not None:
            results.append(_uncompared(key, rule, case))
    return results, changes, host_factor


def _uncompared(key: str, rule: Rule, case: Case) -> RuleResult:
    """Returns why a figure was not compared, or the verdict on one that is far worse anyway."""
    verdict, reason = Verdict.NO_BASELINE, "No blessed run has this figure yet."
    if baseline.is_partial(key, case.candidate):
        verdict = Verdict.SKIPPED
        reason = "The training was interrupted; only the part after that is known."
    elif far_worse := drift.far_worse(key, rule, case):
        return far_worse
    elif case.having(key) and case.is_of_other_trainings(key):
        # The loss says nothing then, but speed and memory do: early stopping must not refuse a run.
        verdict = Verdict.SKIPPED
        reason = "No blessed run has its loss function, batch size and steps, so losses differ."
    elif case.having(key):
        verdict, reason = Verdict.INCOMPARABLE, "No comparable blessed run has this figure."
    value = case.candidate.figure(key)
    return RuleResult(metric=key, kind="change", verdict=verdict, value=value, reason=reason)


def _check_limits(key: str, value: float, *, rule: Rule) -> RuleResult:
    """Checks a figure against a rule's `min` and `max`, which are inclusive."""
    shown = functools.partial(formatting.format_value, key)
    verdict = Verdict.LIMIT
    if rule.min is not None and value < rule.min:
        reason = f"{shown(value)} is below the minimum {shown(rule.min)}."
    elif rule.max is not None and value > rule.max:
        reason = f"{shown(value)} is above the maximum {shown(rule.max)}."
    else:
        verdict, reason = Verdict.PASS, f"{shown(value)} is within the limits."
    if metrics.lookup(key).unit == "flag":  # flags are not quantities
        passes = verdict is Verdict.PASS
        wanted = "as it must be" if passes else f"but must be {shown(1 - value)}"
        reason = f"It is {shown(value)}, {wanted}."
    return RuleResult(
        metric=key,
        kind="limit",
        verdict=verdict,
        reason=reason,
        value=value,
        lowest=rule.min,
        highest=rule.max,
    )


def _impossible(key: str, candidate: Run) -> RuleResult | None:
    """Returns INVALID for a figure that is not finite or not possible; None for any other."""
    if key in candidate.not_finite:
        reason = "It is NaN or infinite, so it counts as not measured."
        return RuleResult(metric=key, kind="limit", verdict=Verdict.INVALID, reason=reason)
    if key not in candidate.impossible:
        return None
    value, (lowest, highest) = candidate.figure(key), candidate.impossible[key]
    return RuleResult(
        metric=key,
        kind="limit",
        verdict=Verdict.INVALID,
        reason=(
            f"Expected a value from {lowest:g} to {highest:g}. Received: {key}={value:g}, which is "
            "impossible, so it counts as not measured."
        ),
        value=value,
        lowest=lowest if math.isfinite(lowest) else None,
        highest=highest if math.isfinite(highest) else None,
    )


def _problem(key: str, rule: Rule, case: Case) -> RuleResult | None:
    """Returns why a figure cannot be judged, None if it can.

    A loss, or a metric of Evaluator's, that the node's last blessed run had must not be missing,
    unless the user's own rule is optional; any other figure, unless the rule is.
    """
    candidate, settings, before = case.candidate, case.settings, case.before
    kind: Literal["limit", "change"] = "limit" if rule.tolerance is None else "change"
    value = candidate.figure(key)
    if value is None:
        component = metrics.lookup(key).component
        recorder = "The script's training" if candidate.is_of_script else component
        reason = f"{recorder} recorded no finite value"
        if candidate.unmeasured and component == "OptimizedTrainer":
            reason = f"Nothing was measured: {candidate.unmeasured}"
        is_missed = before is not None and before.figure(key) is not None
        given = settings.rules.get(key)
        is_served = candidate.environment.get("parameter_server_count", "0") != "0"
        if is_missed and noise.kind(key) is noise.Kind.QUALITY and not (given and given.optional):
            verdict = Verdict.INVALID
            reason = f"{reason}, and the last blessed run has one."
        elif key in _PER_PROCESS and rule.tolerance is not None and is_served:
            verdict = Verdict.SKIPPED
            reason = "It is not measured with parameter servers, where the workers compute."
        elif rule.optional:
            verdict, reason = Verdict.SKIPPED, f"{reason}; the rule is optional."
        else:
            verdict, reason = Verdict.INVALID, f"{reason}, and the rule is not optional."
        return RuleResult(metric=key, kind=kind, verdict=verdict, reason=reason)
    steps = candidate.figure("train_step_count")
    if key in PER_STEP and steps is not None and steps < settings.minimum_steps:
        since = " since the training was interrupted" if candidate.is_resumed else ""
        reason = f"Based on {steps:.0f} steps{since}, and needs {settings.minimum_steps}."
        return RuleResult(
            metric=key, kind=kind, verdict=Verdict.INVALID, value=value, reason=reason
        )
    return None


def _refuses(policy: Policy, outcome: RuleResult, *, quality_holds: bool) -> bool:
    """Whether a verdict refuses: a limit always, others as the policy says, if it names them."""
    if outcome.verdict is Verdict.LIMIT:
        return True
    answer = getattr(policy, outcome.verdict.name.lower(), "bless")
    may_pass = quality_holds and not outcome.is_far_worse
    return answer == "refuse" or (answer == "if quality holds" and not may_pass)


def _check_reference_run(reference: str | None, ledger: Ledger, *, candidate: Run) -> None:
    known = [entry.run_id for entry in ledger.of_node(candidate)]
    if reference is not None and reference not in (*known, candidate.run_id):
        raise errors.UserError(
            f"Expected the reference run to be a blessed run of this node, which has {len(known)}. "
            f"Received: gate.reference_run={reference!r}. Name another run, or leave it out."
        )
