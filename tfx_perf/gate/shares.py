"""What a larger share of a step means where the rest of it became shorter.

A plan that halves the computation of a step doubles the share of the same wait, for data or for
other replicas. Training does not wait longer then, and a run that is faster must not be refused for
it.
"""

import functools
from collections.abc import Mapping

from tfx_perf import formatting, metrics
from tfx_perf.gate.change import Change
from tfx_perf.gate.outcome import Outcome, Verdict

_STEP = "step_time_seconds"


def of_shorter_steps(outcome: Outcome, changes: Mapping[str, Change]) -> Outcome:
    """Returns the outcome, passed where it would be no larger share of the baseline's step.

    Args:
        outcome: of comparing a figure with the blessed runs.
        changes: what was compared, by metric.
    """
    step = changes.get(_STEP)
    if outcome.metric not in metrics.SHARES_OF_A_STEP or outcome.value is None or step is None:
        return outcome
    if step.value >= step.baseline or outcome.kind == "limit":
        return outcome
    share = outcome.value * step.value / step.baseline
    # With noise that leaves the share open, it must not be longer at all.
    bounds = {Verdict.REGRESSION: outcome.highest, Verdict.INCONCLUSIVE: outcome.baseline}
    bound = bounds.get(outcome.verdict)
    if bound is None or share > bound:
        return outcome
    shown = functools.partial(formatting.format_value, outcome.metric)
    now, then = (formatting.format_seconds(seconds) for seconds in (step.value, step.baseline))
    return outcome.model_copy(
        update={
            "verdict": Verdict.PASS,
            "reason": (
                f"{shown(outcome.value)} of a step of {now} is no longer than "
                f"{shown(share)} of the baseline's, {then}."
            ),
        }
    )
