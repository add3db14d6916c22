"""The gate's decision in a sentence."""

from collections.abc import Mapping, Sequence

from tfx_perf import formatting
from tfx_perf.gate import unexplained
from tfx_perf.gate.circumstances import Circumstances
from tfx_perf.gate.outcome import Outcome, Verdict
from tfx_perf.gate.remeasured import Remeasured


def headline(
    outcomes: Sequence[Outcome],
    *,
    blessed: bool,
    baseline_count: int,
    differences: Mapping[str, tuple[str, str]],
    slower_steps: str,
    circumstances: Circumstances,
) -> str:
    """Returns the decision, with what it rests on; what was not compared comes first.

    Of a run of which nothing was recorded the reason comes first.

    Args:
        outcomes: one for each check.
        blessed: the decision.
        baseline_count: comparable blessed runs.
        differences: environment field to its value in the latest blessed run and in this
            one, where blessed runs exist and none is comparable.
        slower_steps: see `other_size`; empty if there is nothing to say.
        circumstances: of the run; they are told where its step time refuses.
    """
    if not outcomes:
        return "Refused: the gate has no rule, so nothing was checked."
    decision = _decision(outcomes, blessed=blessed)
    if any(item.refuses and Remeasured.may_settle(item) for item in outcomes):
        decision = f"{decision} {circumstances}".rstrip()
    if differences and not circumstances.candidate.environment:
        return f"{decision} No blessed run is comparable: nothing was recorded of this one."
    if differences:
        fields = unexplained.in_words(differences)
        has_quality = any(item.kind == "change" and item.checked for item in outcomes)
        rest = "quality and absolute limits only" if has_quality else "absolute limits only"
        parts = (f"Not comparable with any blessed run ({fields}): {rest}.", slower_steps, decision)
        return " ".join(filter(None, parts))
    if not baseline_count:
        compared = [item.metric for item in outcomes if item.kind == "change" and item.checked]
        if compared:
            return f"{decision} Compared with Evaluator's baseline model: {', '.join(compared)}."
        return f"{decision} Nothing was compared: no blessed run is on record yet."
    said = f"{decision} Compared with {formatting.counted(baseline_count, 'blessed run')}"
    if baseline_count == 1:
        return f"{said}."
    return f"{said}: a figure with their mean at its present level, a counter with the last."


def not_judged(unread: Sequence[str]) -> str:
    """Returns a sentence on the metrics that no rule reads, behind a space; empty if all are read.

    Args:
        unread: see `GateRecord.unread`.
    """
    if not unread:
        return ""
    return (
        f" Not judged, as no name says which way is better: {', '.join(unread)}; rules: "
        f"{{{unread[0]}: {{direction: higher, margin: 0.02}}}}, or lower, would."
    )


def _decision(outcomes: Sequence[Outcome], *, blessed: bool) -> str:
    count = formatting.counted(len(outcomes), "check")
    checked = sum(item.checked for item in outcomes)
    if not blessed:
        refusals = [outcome for outcome in outcomes if outcome.refuses]
        first = refusals[0]
        if first.verdict is Verdict.NOT_COMPARABLE:  # of which some say more
            first = next((item for item in refusals if item.is_far_worse), first)
        said = f"{first.metric} ({first.verdict.value}): {first.reason}"
        return f"Refused by {len(refusals)} of {count}. {said}"
    if not checked:
        return f"Blessed unchecked: none of {count} applies yet."
    beyond = [item for item in outcomes if item.checked and item.verdict is not Verdict.PASS]
    incomparable = [item for item in outcomes if item.verdict is Verdict.NOT_COMPARABLE]
    return (
        f"Blessed: {checked} of {count} made, none refused."
        f"{_listed('Worse, and only reported', beyond)}"
        f"{_listed('Not comparable with a blessed run', incomparable)}"
    )


def _listed(heading: str, outcomes: Sequence[Outcome]) -> str:
    """Returns the metrics of some outcomes, behind a space; empty if there are none."""
    found = ", ".join(dict.fromkeys(item.metric for item in outcomes))
    return f" {heading}: {found}." if found else ""
