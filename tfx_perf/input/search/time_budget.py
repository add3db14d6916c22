"""The wall time that a search may take."""

import time


class TimeBudget:
    """Starts when it is made; phases of the search end at shares of it.

    What one phase leaves over, the next may use.

    Attributes:
        seconds: of the whole, as the shares count them.
        is_limited: whether it ends earlier than it was to when it began.
    """

    def __init__(self, seconds: float, *, spent_seconds: float = 0.0) -> None:
        """Starts a budget.

        Args:
            seconds: of it all.
            spent_seconds: of these, what is gone already; the phases share the rest.
        """
        self.seconds, self.is_limited = max(0.0, seconds - spent_seconds), False
        self._started = time.monotonic()
        self._began = self._started - spent_seconds

    def limit(self, seconds: float, *, reached: float) -> None:
        """Has what is left take no more than some seconds from now.

        Args:
            seconds: no longer than this, if it is less than what is left.
            reached: the share of the budget at which the phases have arrived.
        """
        now = time.monotonic()
        if now + seconds < self.until(1.0):
            self.seconds, self.is_limited = seconds / (1 - reached), True
            self._started = now - reached * self.seconds

    @property
    def elapsed_seconds(self) -> float:
        """Time since the start."""
        return time.monotonic() - self._began

    def until(self, share: float) -> float:
        """Returns the value of `time.monotonic()` when this share of the budget is used up."""
        return self._started + share * self.seconds

    def left(self, share: float) -> float:
        """Returns the seconds until this share of the budget is used up, at least 0."""
        return max(0.0, self.until(share) - time.monotonic())
