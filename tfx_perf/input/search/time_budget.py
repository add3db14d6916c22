"""The wall time that a search may take."""

import time


class TimeBudget:
    """Starts when it is made; phases of the search end at shares of it.

    What one phase leaves over, the next may use.
    """

    def __init__(self, seconds: float) -> None:
        """Starts a budget of `seconds`."""
        self.seconds = seconds
        self._started = time.monotonic()

    @property
    def elapsed_seconds(self) -> float:
        """Time since the start."""
        return time.monotonic() - self._started

    def until(self, share: float) -> float:
        """Returns the value of `time.monotonic()` when this share of the budget is used up."""
        return self._started + share * self.seconds

    def left(self, share: float) -> float:
        """Returns the seconds until this share of the budget is used up, at least 0."""
        return max(0.0, self.until(share) - time.monotonic())
