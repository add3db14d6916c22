"""The decision on a run: every rule, then one answer."""

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from tfx_perf import errors
from tfx_perf.gate import (
    comparability,
    decided_level,
    drift,
    holm_bonferroni,
    limits,
    mean_step,
    noise,
    one_step,
    other_size,
    own_error,
    prediction,
    remedies,
    shares,
    size,
    unexplained,
    validity,
)
from tfx_perf.gate.change import Change
from tfx_perf.gate.circumstances import Circumstances
from tfx_perf.gate.headline import headline, not_judged
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.outcome import Outcome, Verdict
from tfx_perf.gate.record import GateRecord
from tfx_perf.gate.remeasured import Remeasured
from tfx_perf.gate.run import Run
from tfx_perf.settings import following
from tfx_perf.settings.gate import GateSettings
from tfx_perf.settings.policy import Policy
from tfx_perf.settings.rule import Rule


def evaluate(
    candidate: Run,
    *,
    ledger: Ledger,
    settings: GateSettings,
    remeasured: Remeasured | None = None,
) -> GateRecord:
    """Decides whether a run may be pushed; see docs/gate_statistics.md.

    It is blessed if no rule refuses. Without any run on record the absolute limits decide
    alone, as in TFX's Evaluator without a baseline, and the headline says so. A gate without
    any rule blesses nothing. The same arguments always give the same decision.

    Args:
        candidate: the run to judge.
        ledger: the blessed runs so far; those of the candidate's own training do not count.
        settings: the rules.
        remeasured: what training it again beside a blessed run has shown.

    Raises:
        UserError: the anchor that the settings name is not in the ledger.
    """
    _check_anchor(settings.anchor, ledger, candidate=candidate)
    ledger = ledger.without(candidate)
    comparable = ledger.comparable(candidate)
    known = ledger.of_node(candidate)
    before = known[-1] if known else None
    rules = settings.rules_for([*candidate.evaluation, *(before.evaluation if before else ())])
    impossible = validity.impossible(candidate)
    rules |= {key: Rule(optional=False) for key in impossible}
    problems = {
        key: impossible.get(key)
        or validity.problem(key, rule, candidate=candidate, settings=settings, before=before)
        for key, rule in rules.items()
    }
    judged = {key: rule for key, rule in rules.items() if rule.margin is not None}
    judged = {key: rule for key, rule in judged.items() if not problems[key]}
    changes, factor = _changes(judged, candidate=candidate, ledger=ledger, settings=settings)
    # Small losses against each day's baseline model add up, so that the anchor is no gain's.
    of_gains = {key: rule for key, rule in judged.items() if candidate.gain(key) is not None}
    without_gains = candidate.model_copy(update={"evaluation_gains": {}})
    own, _ = _changes(of_gains, candidate=without_gains, ledger=ledger, settings=settings)
    since_anchor = {**changes, **dict.fromkeys(of_gains), **own}
    levels = _levels(changes, rate=settings.false_alarm_rate)
    smallest_level = min(levels.values(), default=settings.false_alarm_rate)
    found = [
        (rule, outcome)
        for key, rule in rules.items()
        for outcome in _check(
            key,
            rule,
            candidate=candidate,
            problem=problems[key],
            change=changes.get(key),
            since_anchor=since_anchor.get(key),
            level=levels.get(key, smallest_level),
            smallest_level=smallest_level,
            ledger=ledger,
            pinned=settings.anchor,
            baseline_runs=settings.baseline_runs,
        )
    ]
    baseline = comparable[-settings.baseline_runs :]
    circumstances = Circumstances(candidate, baseline)
    if remeasured:
        found = [
            (rule, remeasured.settle(item, rule, baseline=baseline)) for rule, item in found
        ]
    leader = next((item for _, item in found if _is_change_of(item, following.LEADER)), None)
    found = [
        (rule, mean_step.left_to_the_median(item, changes[item.metric], leader=leader))
        if item.metric in changes
        else (rule, item)
        for rule, item in found
    ]
    found = [(rule, shares.of_shorter_steps(item, changes)) for rule, item in found]
    quality_holds = any(
        item.kind == "change"
        and item.verdict is Verdict.PASS
        and not rule.advisory
        and noise.kind(item.metric) is noise.Kind.QUALITY
        for rule, item in found
    )
    outcomes = []
    for rule, outcome in found:
        answer = _refuses(settings.policy, outcome, quality_holds=quality_holds)
        refuses = answer and not rule.advisory
        of_rule = [item for _, item in found if item.metric == outcome.metric]
        remedy = None
        if refuses:
            remedy = remedies.remedy(
                outcome, rule, settings=settings, outcomes=of_rule, circumstances=circumstances
            )
        answers = {"refuses": refuses, "advisory": rule.advisory, "remedy": remedy}
        outcomes.append(outcome.model_copy(update=answers))
    differences, slower_steps = {}, ""
    if known and not comparable:
        differences = size.differences(known[-1].environment, candidate.environment)
        slower_steps = other_size.slower_steps(
            candidate, known[-1], differences=differences, outcomes=outcomes
        )
    unread = settings.unruled(candidate.evaluation)
    blessed = bool(outcomes) and not any(outcome.refuses for outcome in outcomes)
    said = headline(
        outcomes,
        blessed=blessed,
        baseline_count=len(baseline),
        differences=differences,
        slower_steps=slower_steps,
        circumstances=circumstances,
    )
    return GateRecord(
        blessed=blessed,
        headline=said + not_judged(unread),
        outcomes=tuple(outcomes),
        candidate=candidate,
        baseline_runs=baseline,
        differences=differences,
        false_alarm_rate=settings.false_alarm_rate,
        host_factor=factor,
        unread=unread,
        remeasured=remeasured,
    )


def _is_change_of(outcome: Outcome, key: str) -> bool:
    return outcome.metric == key and outcome.kind == "change"


def _check(
    key: str,
    rule: Rule,
    *,
    candidate: Run,
    problem: Outcome | None,
    change: Change | None,
    since_anchor: Change | None,
    level: float,
    smallest_level: float,
    ledger: Ledger,
    pinned: str | None,
    baseline_runs: int,
) -> Iterator[Outcome]:
    """Yields the outcomes of one rule."""
    if problem:
        yield problem
        return
    value = candidate.figure(key)
    if value is not None and (rule.min is not None or rule.max is not None):
        yield limits.check(key, value, rule=rule)
    if rule.margin is None:
        return
    if change is None:
        yield _uncompared(
            key, rule, candidate=candidate, ledger=ledger, baseline_runs=baseline_runs
        )
        return
    yield change.outcome(level=level, smallest_level=smallest_level)
    if since_anchor:
        yield from drift.check(since_anchor, pinned=pinned, level=smallest_level)


def _uncompared(
    key: str, rule: Rule, *, candidate: Run, ledger: Ledger, baseline_runs: int
) -> Outcome:
    """Returns the outcome where no run can be compared with."""
    having = [
        run
        for run in ledger.of_node(candidate)
        if run.figure(key) is not None and not comparability.is_of_a_part(key, run)
    ]
    verdict, reason = Verdict.NOT_COMPARED, "No blessed run has this figure yet."
    if comparability.is_of_a_part(key, candidate):
        verdict = Verdict.NOT_CHECKED
        reason = "The training was interrupted: it is known only of the part that came after."
    elif far_worse := unexplained.check(
        key, rule, candidate=candidate, ledger=ledger, baseline_runs=baseline_runs
    ):
        return far_worse
    elif having and comparability.is_of_other_trainings(key, candidate=candidate, ledger=ledger):
        # It says nothing, while speed and memory do; a run that stops early must not be refused.
        verdict = Verdict.NOT_CHECKED
        reason = "No blessed run trained about as many steps, and then losses differ anyway."
    elif having:
        verdict, reason = Verdict.NOT_COMPARABLE, "No blessed run that has it is comparable."
    return Outcome(
        metric=key, kind="change", verdict=verdict, value=candidate.figure(key), reason=reason
    )


def _changes(
    rules: Mapping[str, Rule], *, candidate: Run, ledger: Ledger, settings: GateSettings
) -> tuple[dict[str, Change], float]:
    """Returns what can be compared, by metric, and the host's factor for times."""
    found = {}
    for key, rule in rules.items():
        value = candidate.figure(key)
        blessed = comparability.runs(key, candidate=candidate, ledger=ledger)
        history = _history(key, rule, candidate=candidate, blessed=blessed, ledger=ledger)
        if history and value is not None:
            found[key] = Change(
                key,
                value,
                history=history,
                baseline_runs=settings.baseline_runs,
                rule=rule,
                own_errors=own_error.of(key, candidate=candidate, blessed=blessed),
            )
    found = one_step.at_one_level(found)
    factors = {kind: _host_factor(found.values(), kind) for kind in noise.Kind}
    return {
        key: dataclasses.replace(change, host_factor=factors[noise.kind(key)])
        for key, change in found.items()
    }, factors[noise.Kind.TIME]


def _history(
    key: str, rule: Rule, *, candidate: Run, blessed: Sequence[Run], ledger: Ledger
) -> dict[str, float]:
    """Returns the figures to compare with, by the runs that have them, oldest first."""
    gain, value = candidate.gain(key), candidate.figure(key)
    if gain is not None and value is not None:  # on the same examples, so free of their variation
        return {"Evaluator's baseline model": value - gain}
    known = [(run, figure) for run in blessed if (figure := run.figure(key)) is not None]
    runs = [run for run, _ in known]
    figures, uncertainty = size.at_size_of(
        candidate.environment,
        key=key,
        figures=[figure for _, figure in known],
        environments=[run.environment for run in runs],
        prior=rule.noise or noise.prior(key),
    )
    if uncertainty > size.LARGEST_UNCERTAINTY:
        return {}
    begin = decided_level.beginning(key, figures, runs=runs, rule=rule, ledger=ledger)
    names = [run.run_id for run in runs]
    return dict(zip(names[begin:], figures[begin:], strict=True))


def _host_factor(changes: Collection[Change], kind: noise.Kind) -> float:
    """Returns by how much figures of a kind vary more than expected; see `prediction`."""
    return prediction.host_factor(
        [
            (change.level, math.hypot(change.prior, change.prediction.usual_error))
            for change in changes
            if noise.kind(change.key) is kind and not (change.is_exact or change.rule.advisory)
        ]
    )


def _levels(changes: Mapping[str, Change], *, rate: float) -> dict[str, float]:
    """Returns the level of each test that may refuse; exact figures need none."""
    family = [
        key for key, change in changes.items() if not (change.is_exact or change.rule.advisory)
    ]
    p_values = [changes[key].p_value for key in family]
    return dict(zip(family, holm_bonferroni.levels(p_values, rate=rate), strict=True))


def _refuses(policy: Policy, outcome: Outcome, *, quality_holds: bool) -> bool:
    answers = {
        Verdict.LIMIT: policy.limit,
        Verdict.REGRESSION: policy.regression,
        Verdict.INCONCLUSIVE: policy.inconclusive,
        Verdict.INVALID: policy.invalid,
        Verdict.NOT_COMPARABLE: policy.not_comparable,
        Verdict.NOT_COMPARED: policy.not_compared,
    }
    answer = answers.get(outcome.verdict)
    may_pass = quality_holds and not outcome.is_far_worse
    return answer == "refuse" or (answer == "if quality holds" and not may_pass)


def _check_anchor(anchor: str | None, ledger: Ledger, *, candidate: Run) -> None:
    known = [entry.run_id for entry in ledger.of_node(candidate)]
    if anchor is not None and anchor not in (*known, candidate.run_id):
        raise errors.UserError(
            f"Expected the anchor to be a blessed run of this node, which has {len(known)}. "
            f"Received: gate.anchor={anchor!r}. Name another run, or leave it out."
        )
