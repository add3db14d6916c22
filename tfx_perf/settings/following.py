"""What a rule for the step time means for the figures that follow from it.

They are the same measurement in other units. Who tolerates a slower step tolerates the lower rate
and the higher cost that come with it.
"""

from tfx_perf import metrics
from tfx_perf.settings.rule import Rule

LEADER = "step_time_seconds"
FOLLOWERS = {
    key: exponent for key, exponent in metrics.STEP_TIME_EXPONENTS.items() if key != LEADER
}


def loosened(key: str, default: Rule, *, leader: Rule) -> Rule:
    """Returns a follower's default rule, as loose as the user's rule for the step time.

    A rule without margin says nothing about changes, and one that is stricter than the default
    says nothing about the followers.

    Args:
        key: of the follower.
        default: its rule.
        leader: the user's rule for the step time.
    """
    if leader.margin is None or default.margin is None:
        return default
    return Rule(
        **{
            **default.model_dump(),
            "margin": max(default.margin, _worse(key, leader.margin)),
            "budget": max(default.largest_change, _worse(key, leader.largest_change)),
            "noise": default.noise or leader.noise,
            "advisory": default.advisory or leader.advisory,
        }
    )


def _worse(key: str, slower: float) -> float:
    """Returns by how much a follower gets worse when a step takes `slower` longer, e.g. 0.5."""
    return abs((1 + slower) ** FOLLOWERS[key] - 1)
