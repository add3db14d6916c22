"""RecentWaits: the share of a step that each replica waits, between two looks at a training."""

import collections
from typing import NamedTuple

from tfx_perf.training.fit.timer import StepTimer
from tfx_perf.training.measuring.communication import Totals

# Of so many calls, the last ones, are step times taken, so that a rare look is not a long one.
_TIMED_CALLS = 10_000


class _Look(NamedTuple):
    timer: StepTimer
    call_count: int
    step_count: int
    totals: Totals


class RecentWaits:
    """Keeps what was seen before, as far back as the last calls of the train function reach."""

    def __init__(self, *, calls: int) -> None:
        """Has seen nothing.

        Args:
            calls: at least so many are between the looks that are compared, once there are.
        """
        self._calls = calls
        self._looks: collections.deque[_Look] = collections.deque()

    def shares(
        self, timer: StepTimer, *, step_count: int, totals: Totals
    ) -> tuple[float, ...] | None:
        """Looks again; returns the share of each replica, None if too little was seen before.

        Args:
            timer: of the training; with another one, after a rollback, all begins anew.
            step_count: that have ended.
            totals: of the replicas by now.
        """
        looks, now = self._looks, _Look(timer, timer.call_count, step_count, totals)
        if looks and looks[0].timer is not timer:
            looks.clear()
        looks.append(now)
        while len(looks) > 1 and looks[1].call_count <= now.call_count - self._calls:
            looks.popleft()
        then = looks[0]
        first = max(then.call_count, now.call_count - _TIMED_CALLS)
        step_seconds = timer.part(first, now.call_count).mean_seconds()
        if not then.step_count or not step_seconds:  # its first call traces
            return None
        passed_seconds = step_seconds * (now.step_count - then.step_count)
        pairs = zip(then.totals.wait_time_seconds, totals.wait_time_seconds, strict=True)
        return tuple(min(1.0, (after - before) / passed_seconds) for before, after in pairs)
