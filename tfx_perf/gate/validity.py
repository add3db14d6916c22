"""Whether a run has a figure that may be judged."""

import math
from typing import Literal

from tfx_perf import metrics
from tfx_perf.gate import noise
from tfx_perf.gate.outcome import Outcome, Verdict
from tfx_perf.gate.run import Run
from tfx_perf.settings.gate import GateSettings
from tfx_perf.settings.rule import Rule

# What is taken over the steps of a training, and says nothing after a few.
_PER_STEP = frozenset(
    (
        "step_time_seconds", "step_time_p90_seconds", "step_time_p99_seconds",
        "examples_per_second", "achieved_flops_per_second", "mfu_ratio",
        "cost_per_million_examples",
    )
)  # fmt: skip

# Of the process that trains, which beside parameter servers computes nothing.
_PER_PROCESS = frozenset(("training_memory_bytes",))


def impossible(candidate: Run) -> dict[str, Outcome]:
    """Returns by metric why a run is no measurement: figures that none can come to.

    They refuse whether or not a rule asks for them: whatever made them up made the others, too.

    Args:
        candidate: the run.
    """
    found = {}
    for key, (lowest, highest) in candidate.impossible.items():
        value = candidate.figure(key)
        found[key] = Outcome(
            metric=key,
            kind="limit",
            verdict=Verdict.INVALID,
            reason=(
                f"Expected a value from {lowest:g} to {highest:g}, beyond which none can be. "
                f"Received: {key}={value:g}. So it counts as not measured."
            ),
            value=value,
            lowest=lowest if math.isfinite(lowest) else None,
            highest=highest if math.isfinite(highest) else None,
        )
    for key in candidate.not_finite:
        found[key] = Outcome(
            metric=key, kind="limit", verdict=Verdict.INVALID,
            reason="It is NaN or infinite, so that it counts as not measured.",
        )  # fmt: skip
    return found


def problem(
    key: str, rule: Rule, *, candidate: Run, settings: GateSettings, before: Run | None
) -> Outcome | None:
    """Returns why a figure cannot be judged, None if it can.

    A loss or a metric of Evaluator's that was there before, and is NaN or gone, is no figure that a
    run need not have. What cannot be measured is not checked for a change; a limit that cannot be
    checked refuses.

    Args:
        key: the metric.
        rule: an optional one leaves a missing figure unchecked.
        candidate: the run.
        settings: how many steps a figure needs, and the user's own rules.
        before: the last blessed run of its node.
    """
    kind: Literal["limit", "change"] = "limit" if rule.margin is None else "change"
    value = candidate.figure(key)
    if value is None:
        component = metrics.lookup(key).component
        recorder = "The script's training" if candidate.is_of_script else component
        reason = f"{recorder} recorded no such figure, or none that is finite"
        if candidate.unmeasured and component == "OptimizedTrainer":
            reason = f"Nothing was measured: {candidate.unmeasured}"
        is_missed = before is not None and before.figure(key) is not None
        own = settings.rules.get(key)
        if is_missed and noise.kind(key) is noise.Kind.QUALITY and not (own and own.optional):
            verdict = Verdict.INVALID
            reason = f"{reason}, and the blessed runs have it."
        elif key in _PER_PROCESS and rule.margin is not None and _is_served(candidate):
            verdict = Verdict.NOT_CHECKED
            reason = "It is not measured beside parameter servers, whose workers compute."
        elif rule.optional:
            verdict, reason = Verdict.NOT_CHECKED, f"{reason}; the rule is optional."
        else:
            verdict, reason = Verdict.INVALID, f"{reason}, and a rule without its figure refuses."
        return Outcome(metric=key, kind=kind, verdict=verdict, reason=reason)
    steps = candidate.figure("train_step_count")
    if key in _PER_STEP and steps is not None and steps < settings.minimum_steps:
        since = " since the training was interrupted" if candidate.is_resumed else ""
        return Outcome(
            metric=key, kind=kind, verdict=Verdict.INVALID, value=value,
            reason=f"It rests on {steps:.0f} steps{since}, and needs {settings.minimum_steps}.",
        )  # fmt: skip
    return None


def _is_served(candidate: Run) -> bool:
    return candidate.environment.get("parameter_server_count", "0") != "0"
