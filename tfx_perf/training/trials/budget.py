"""Budget: the time of trials, in which what is to come counts before it is begun."""

import math
import time

from tfx_perf import formatting
from tfx_perf.training.team import Team

# Trials keep to their budget but for a compiler, which takes what it takes, or hangs. They are
# ended from outside after so many budgets and seconds.
_LIMIT_BUDGETS, _LIMIT_SECONDS = 2, 30


class Budget:
    """What is left for trials, from the moment at which this is made.

    Attributes:
        lack: what did not fit in, and what would have room for it, in a part of a sentence; empty
            if all did.
    """

    def __init__(self, seconds: float, *, team: Team) -> None:
        """Begins.

        Args:
            seconds: of all the trials.
            team: which train together; the chief's clock decides.
        """
        self._end = time.perf_counter() + seconds
        self._team = team
        self.lack = ""

    def keep_back(self, seconds: float) -> None:
        """Leaves something for what comes at the end."""
        self._end -= seconds

    @property
    def left_seconds(self) -> float:
        """What is left by this process's clock, at least 0."""
        return max(0.0, self._end - time.perf_counter())

    def has(self, seconds: float, *, what: str) -> bool:
        """Returns whether something fits in that takes so long; all workers ask.

        Args:
            seconds: what it needs, at the least.
            what: it is, for `lack`.
        """
        left_seconds = self.left_seconds
        if self._team.decides(seconds < left_seconds):
            return True
        left, needed = map(formatting.format_seconds, (left_seconds, seconds))
        more = math.ceil(max(0.0, seconds - left_seconds)) or 1  # where the chief has less
        self.lack = (
            f"{left} of it were left, and {what} needs {needed} at least; "
            f"training.trial_budget_seconds has room for that if it is larger by {more}"
        )
        return False


def limit_seconds(budget_seconds: float) -> float:
    """Returns after how long trials count as hung.

    Args:
        budget_seconds: theirs.
    """
    return _LIMIT_BUDGETS * budget_seconds + _LIMIT_SECONDS
