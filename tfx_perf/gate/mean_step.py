"""What the mean step time of a short training can tell.

The rate, MFU and cost are made of it. In a training of a tenth of a second one stall of the
machine halves the rate: such a mean says nothing, and would refuse healthy runs for ever. The
median of the same steps does not move.
"""

from tfx_perf.gate.change import Change
from tfx_perf.gate.outcome import Outcome, Verdict
from tfx_perf.settings import following

# The share of the budget that the mean's own uncertainty may take.
_SHARE = 0.5


def left_to_the_median(outcome: Outcome, change: Change, *, leader: Outcome | None) -> Outcome:
    """Returns the outcome, not checked where only the shortness of the training leaves it open.

    Args:
        outcome: of comparing a figure with the blessed runs.
        change: the comparison.
        leader: that of the median step time; None if there is none.
    """
    is_open = outcome.kind == "change" and outcome.verdict is Verdict.INCONCLUSIVE
    if not (is_open and outcome.metric in following.FOLLOWERS):
        return outcome
    if leader is None or leader.verdict is not Verdict.PASS:
        return outcome
    if change.uncertainty_by_shortness <= _SHARE * change.rule.largest_change * change.scale:
        return outcome
    return outcome.model_copy(
        update={
            "verdict": Verdict.NOT_CHECKED,
            "reason": (
                "The training was too short: the mean of its step times is uncertain by "
                f"{change.own_errors.candidate:.1%}. Their median was compared."
            ),
        }
    )
