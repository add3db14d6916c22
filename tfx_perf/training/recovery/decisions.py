"""Decisions: when all workers of a training save, and whether they end."""

import time
from collections.abc import Callable

import numpy as np

from tfx_perf.training.team import Team

_PERIOD_SECONDS = 1.0  # between two times that several workers ask each other
_MOST_CALLS = 1000


class Decisions:
    """Common decisions of all workers on saving and ending; a process alone decides at once."""

    def __init__(self, team: Team, *, is_told_to_end: Callable[[], bool]) -> None:
        self.is_due = False
        self._team, self._is_told_to_end = team, is_told_to_end
        self._all_end = False
        self._calls_left = 0
        self._calls = 0
        self._since = time.perf_counter()

    @property
    def is_ending(self) -> bool:
        """Whether one of the workers was told to end, and all of them know."""
        return self._is_told_to_end() if self._team.count == 1 else self._all_end

    def take(self, *, is_due: bool, must: bool) -> None:
        """Decides, about once a second, and whenever it `must`, which all workers know alike."""
        if self._team.count == 1:
            self.is_due = is_due
            return
        self.is_due = False
        self._calls += 1
        if self._calls_left and not must:
            self._calls_left -= 1
            return
        seconds = max(time.perf_counter() - self._since, 1e-6)
        calls = int(np.clip(_PERIOD_SECONDS * self._calls / seconds, 0, _MOST_CALLS))
        said = self._team.gathered([is_due, self._is_told_to_end(), calls])
        self.is_due, self._all_end = bool(said[:, 0].any()), bool(said[:, 1].any())
        self._calls_left = int(said[:, 2].min())
        self._calls, self._since = 0, time.perf_counter()
