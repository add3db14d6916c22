"""Pulse: a line now and then that says what long work is doing."""

import time
from collections.abc import Callable

SIGN = "..."
"""What follows the time in such a line."""

SILENT_SECONDS = 10.0
"""How long whoever waits should see nothing new."""

LONGEST_SECONDS = 600.0
"""To which the time between two lines grows where they say the same."""

# Of the time in which the same was done; nobody needs to hear in the second hour what came in the
# first minute.
_SHARE = 0.25


class Pulse:
    """Says what is being done, once nothing was said for some time.

    While the same is done, the lines become rarer.
    """

    def __init__(
        self,
        say: Callable[[str], object],
        *,
        seconds: float = SILENT_SECONDS,
        longest_seconds: float = LONGEST_SECONDS,
    ) -> None:
        """Begins to wait.

        Args:
            say: is called with a line.
            seconds: to the first line, and between two that say something else.
            longest_seconds: to which the time between two others grows.
        """
        self._say, self._seconds, self._longest_seconds = say, seconds, longest_seconds
        self._doing, self._since, self._last = "", time.monotonic(), time.monotonic()

    def put_off(self) -> None:
        """Begins to wait anew: whoever waits has seen something else."""
        self._last = time.monotonic()

    def __call__(self, activity: str) -> None:
        """Says it, if it is time; to be called again and again.

        Args:
            activity: what is being done, and behind a colon how far it is.
        """
        what, now = activity or "at work", time.monotonic()
        doing = what.partition(":")[0]
        if doing != self._doing:
            self._doing, self._since = doing, now
        grown = min(_SHARE * (now - self._since), self._longest_seconds)
        if now - self._last >= max(self._seconds, grown):
            self._last = now
            self._say(f"{SIGN} {what}")
