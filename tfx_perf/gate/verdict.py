"""The decision on a run: every rule, then one answer."""

from collections.abc import Mapping, Sequence

from tfx_perf import config, fingerprint
from tfx_perf.gate import rules
from tfx_perf.gate.ledger import Ledger
from tfx_perf.gate.outcome import Outcome
from tfx_perf.gate.record import GateRecord
from tfx_perf.gate.run import Run


def evaluate(candidate: Run, *, ledger: Ledger, settings: config.GateConfig) -> GateRecord:
    """Decides whether a run may be pushed.

    It is blessed if no rule refuses. Without a comparable run the change rules cannot be
    checked; the absolute limits then decide alone, as in TFX's Evaluator without a
    baseline, and the headline says so. A gate without any rule blesses nothing.

    Args:
        candidate: the run to judge.
        ledger: the blessed runs so far.
        settings: the rules.
    """
    baseline = ledger.comparable(candidate.environment)
    limits = [
        rules.check_limit(metric, candidate.figures.get(metric), limit)
        for metric, limit in settings.limits.items()
    ]
    changes = [
        rules.check_change(
            metric,
            candidate.figures.get(metric),
            baseline=[run.figures[metric] for run in baseline if metric in run.figures],
            margin=margin,
        )
        for metric, margin in settings.changes.items()
    ]
    outcomes = (*limits, *changes)
    differences = {}
    if ledger.entries and not baseline:
        latest = ledger.entries[-1]
        differences = fingerprint.differences(latest.environment, candidate.environment)
    return GateRecord(
        blessed=bool(outcomes) and not any(outcome.refuses for outcome in outcomes),
        headline=_headline(outcomes, ledger=ledger, baseline=baseline, differences=differences),
        outcomes=outcomes,
        candidate=candidate,
        baseline_runs=baseline,
        differences=differences,
    )


def _headline(
    outcomes: Sequence[Outcome],
    *,
    ledger: Ledger,
    baseline: Sequence[Run],
    differences: Mapping[str, tuple[str, str]],
) -> str:
    if not outcomes:
        return "Refused: the gate has no rule, so nothing was checked."
    refusals = [outcome for outcome in outcomes if outcome.refuses]
    checked = sum(outcome.checked for outcome in outcomes)
    if refusals:
        first = f"{refusals[0].metric}: {refusals[0].reason}"
        decision = f"Refused by {len(refusals)} of {_counted(len(outcomes), 'rule')}. {first}"
    elif checked:
        decision = f"Blessed: {checked} of {_counted(len(outcomes), 'rule')} checked, none refused."
    else:
        decision = f"Blessed unchecked: none of {_counted(len(outcomes), 'rule')} applies yet."
    if baseline:
        return f"{decision} Compared with {_counted(len(baseline), 'blessed run')}."
    if not ledger.entries:
        return f"{decision} Nothing was compared: no blessed run is on record yet."
    fields = "; ".join(f"{field} {old} -> {new}" for field, (old, new) in differences.items())
    return f"{decision} Nothing was compared: the latest blessed run differs in {fields}."


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
