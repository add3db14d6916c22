"""The decision on a run: every rule, then one answer."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence

from tfx_perf import errors, fingerprint
from tfx_perf.gate import drift, holm, limits, noise, prediction, validity
from tfx_perf.gate.change import Change
from tfx_perf.gate.headline import headline
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.outcome import Outcome, Verdict
from tfx_perf.gate.record import GateRecord
from tfx_perf.gate.remeasured import Remeasured
from tfx_perf.gate.run import Run
from tfx_perf.settings.gate import GateConfig
from tfx_perf.settings.policy import Policy
from tfx_perf.settings.rule import Rule


def evaluate(
    candidate: Run,
    *,
    ledger: Ledger,
    settings: GateConfig,
    remeasured: Remeasured | None = None,
) -> GateRecord:
    """Decides whether a run may be pushed; see docs/gate.md.

    It is blessed if no rule refuses. Without a comparable run the absolute limits decide
    alone, as in TFX's Evaluator without a baseline, and the headline says so. A gate without
    any rule blesses nothing. The same arguments always give the same decision.

    Args:
        candidate: the run to judge.
        ledger: the blessed runs so far.
        settings: the rules.
        remeasured: what training it again beside a blessed run has shown.

    Raises:
        UserError: the anchor that the settings name is not in the ledger.
    """
    _check_anchor(settings.anchor, ledger)
    comparable = ledger.comparable(candidate.environment)
    baseline = comparable[-settings.baseline_runs :]
    rules = settings.rules_for(candidate.evaluation)
    changes, factor = _changes(rules, candidate=candidate, baseline=baseline, settings=settings)
    levels = _levels(changes, rate=settings.false_alarm_rate)
    smallest_level = min(levels.values(), default=settings.false_alarm_rate)
    outcomes = []
    for key, rule in rules.items():
        found = _check(
            key,
            rule,
            candidate=candidate,
            change=changes.get(key),
            level=levels.get(key, smallest_level),
            smallest_level=smallest_level,
            comparable=comparable,
            settings=settings,
        )
        for compared in found:
            settled = remeasured and remeasured.settle(compared, rule, baseline=baseline)
            outcome = settled or compared
            refuses = not rule.advisory and _refuses(settings.policy, outcome.verdict)
            answer = {"refuses": refuses, "advisory": rule.advisory}
            outcomes.append(outcome.model_copy(update=answer))
    differences = {}
    if ledger.entries and not comparable:
        latest = ledger.entries[-1]
        differences = fingerprint.differences(latest.environment, candidate.environment)
    blessed = bool(outcomes) and not any(outcome.refuses for outcome in outcomes)
    return GateRecord(
        blessed=blessed,
        headline=headline(
            outcomes, blessed=blessed, baseline_count=len(baseline), differences=differences
        ),
        outcomes=tuple(outcomes),
        candidate=candidate,
        baseline_runs=baseline,
        differences=differences,
        false_alarm_rate=settings.false_alarm_rate,
        host_factor=factor,
        remeasured=remeasured,
    )


def _check(
    key: str,
    rule: Rule,
    *,
    candidate: Run,
    change: Change | None,
    level: float,
    smallest_level: float,
    comparable: Sequence[Run],
    settings: GateConfig,
) -> Iterator[Outcome]:
    """Yields the outcomes of one rule."""
    problem = validity.problem(key, rule, candidate=candidate, settings=settings)
    if problem:
        yield problem
        return
    if rule.min is not None or rule.max is not None:
        yield limits.check(key, candidate.figure(key), rule=rule)
    if rule.margin is None:
        return
    if change is None:
        yield Outcome(
            metric=key, kind="change", verdict=Verdict.NOT_COMPARED, value=candidate.figure(key),
            reason="No comparable blessed run has this figure.",
        )  # fmt: skip
        return
    yield change.outcome(level=level, smallest_level=smallest_level)
    yield from drift.check(
        change, comparable=comparable, pinned=settings.anchor, level=smallest_level
    )


def _changes(
    rules: Mapping[str, Rule], *, candidate: Run, baseline: Sequence[Run], settings: GateConfig
) -> tuple[dict[str, Change], float]:
    """Returns what can be compared, by metric, and the host's factor for times."""
    found = {}
    for key, rule in rules.items():
        samples = [run.figure(key) for run in baseline if run.figure(key) is not None]
        problem = validity.problem(key, rule, candidate=candidate, settings=settings)
        if rule.margin is not None and samples and not problem:
            found[key] = Change(key, candidate.figure(key), samples=samples, rule=rule)
    factors = {kind: _host_factor(found.values(), kind) for kind in noise.Kind}
    return {
        key: dataclasses.replace(change, host_factor=factors[noise.kind(key)])
        for key, change in found.items()
    }, factors[noise.Kind.TIME]


def _host_factor(changes: Collection[Change], kind: noise.Kind) -> float:
    """Returns by how much figures of a kind vary more than expected; see `prediction`."""
    return prediction.host_factor(
        [
            (change.level, change.prior)
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
    return dict(zip(family, holm.levels(p_values, rate=rate), strict=True))


def _refuses(policy: Policy, verdict: Verdict) -> bool:
    answers = {
        Verdict.LIMIT: policy.limit,
        Verdict.REGRESSION: policy.regression,
        Verdict.INCONCLUSIVE: policy.inconclusive,
        Verdict.INVALID: policy.invalid,
        Verdict.NOT_COMPARED: policy.not_compared,
    }
    return answers.get(verdict) == "refuse"


def _check_anchor(anchor: str | None, ledger: Ledger) -> None:
    known = [entry.run_id for entry in ledger.entries]
    if anchor is not None and anchor not in known:
        raise errors.UserError(
            f"Expected the anchor to be a blessed run of the ledger, which has {len(known)}. "
            f"Received: gate.anchor={anchor!r}. Name another run, or leave it out."
        )
