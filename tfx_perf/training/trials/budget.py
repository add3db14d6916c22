"""Budget: the time of trials, in which what is to come counts before it is begun."""

import time

from tfx_perf.training.team import Team

# Trials keep to their budget but for a compiler, which takes what it takes, or hangs. They are
# ended from outside after so many budgets and seconds.
_LIMIT_BUDGETS, _LIMIT_SECONDS = 2, 30


class Budget:
    """What is left for trials, from the moment at which this is made."""

    def __init__(self, seconds: float, *, team: Team) -> None:
        """Begins.

        Args:
            seconds: of all the trials.
            team: which train together; the chief's clock decides.
        """
        self._end = time.perf_counter() + seconds
        self._team = team

    def keep_back(self, seconds: float) -> None:
        """Leaves something for what comes at the end."""
        self._end -= seconds

    @property
    def left_seconds(self) -> float:
        """What is left by this process's clock, at least 0."""
        return max(0.0, self._end - time.perf_counter())

    def has(self, seconds: float) -> bool:
        """Returns whether something fits in that takes so long; all workers ask."""
        return self._team.decides(seconds < self.left_seconds)


def limit_seconds(budget_seconds: float) -> float:
    """Returns after how long trials count as hung.

    Args:
        budget_seconds: theirs.
    """
    return _LIMIT_BUDGETS * budget_seconds + _LIMIT_SECONDS
