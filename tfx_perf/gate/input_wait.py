"""What a larger share of waiting for input means where the rest of the step became shorter.

A plan that halves the computation of a step doubles the share of the same wait. Training does not
wait longer for its data then, and a run that is faster must not be refused for it.
"""

from collections.abc import Mapping

from tfx_perf import formatting
from tfx_perf.gate.change import Change
from tfx_perf.gate.outcome import Outcome, Verdict

_SHARE, _STEP = "input_wait_ratio", "step_time_seconds"


def of_shorter_steps(outcome: Outcome, changes: Mapping[str, Change]) -> Outcome:
    """Returns the outcome, passed where the wait is no larger share of the baseline's step.

    Args:
        outcome: of comparing a figure with the blessed runs.
        changes: what was compared, by metric.
    """
    step = changes.get(_STEP)
    if outcome.metric != _SHARE or outcome.value is None or step is None:
        return outcome
    if step.value >= step.baseline or outcome.kind == "limit":
        return outcome
    share = outcome.value * step.value / step.baseline
    # With noise that leaves the share open, the wait must not be longer at all.
    bounds = {Verdict.REGRESSION: outcome.highest, Verdict.INCONCLUSIVE: outcome.baseline}
    bound = bounds.get(outcome.verdict)
    if bound is None or share > bound:
        return outcome
    now, then = (formatting.format_seconds(seconds) for seconds in (step.value, step.baseline))
    return outcome.model_copy(
        update={
            "verdict": Verdict.PASS,
            "reason": (
                f"{formatting.format_value(_SHARE, outcome.value)} of a step of {now} is no longer "
                f"a wait than {formatting.format_value(_SHARE, share)} of the baseline's, {then}."
            ),
        }
    )
