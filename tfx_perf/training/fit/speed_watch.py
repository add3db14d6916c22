"""SpeedWatch: leaves a plan that turns out to be slower than plain `fit`."""

import dataclasses
import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tfx_perf import formatting, statistics
from tfx_perf.training.fit.timer import wait_for
from tfx_perf.training.step.step_runner import Logs, StepRunner, StepRunnerWrapper

_LOGGER = logging.getLogger(__name__)

_WINDOW_CALLS = 20
_PAIRS = 6
# If both turned out equally slow, only a plan that slows down this much more is looked at again.
_NEW_PROMISE = 1.5


@dataclasses.dataclass(frozen=True)
class Promise:
    """What a plan has to keep.

    Attributes:
        step_seconds: a step of plain `fit` in the trials; the plan's must not take longer.
        margin: how much longer, relatively, does not matter.
    """

    step_seconds: float
    margin: float


class SpeedWatch(StepRunnerWrapper):
    """Runs the steps of a plan as long as it keeps what the trials promised.

    Where its steps take longer than plain `fit`'s did in the trials, the next calls are made in
    turns, one with the plan and one with plain steps. If the plan surely is the slower one, the
    training goes on with plain steps, from where it is; if both are, the machine is.

    Attributes:
        note: why the plan was left, in a sentence; None as long as it runs.
    """

    def __init__(
        self,
        inner: StepRunner,
        plain_step: Callable[[Any], Logs],
        *,
        promise: Promise,
    ) -> None:
        """Prepares to watch.

        Args:
            inner: runs steps with the plan.
            plain_step: runs one step as Keras does.
            promise: what the plan has to keep.
        """
        super().__init__(inner)
        self.note: str | None = None
        self._plain_step = plain_step
        self._promised_seconds = promise.step_seconds
        self._margin = promise.margin
        self._seconds: list[float] = []
        self._traced = False
        self._schedule: list[bool] = []  # of turns: whether with the plan
        self._turns: dict[bool, list[float]] = {}

    def run(self, iterator: Any, steps: int) -> Logs:
        """Runs steps."""
        if self.note:
            return self._run_plainly(iterator, steps)
        if self._schedule:
            return self._take_turn(iterator, steps)
        logs, seconds = _timed(self.inner.run, iterator, steps)
        if self._traced:
            self._seconds.append(seconds)
        self._traced = True
        if len(self._seconds) >= _WINDOW_CALLS:
            slow = np.median(self._seconds) > self._promised_seconds * (1 + self._margin)
            self._seconds.clear()
            if slow:  # the first turn traces the plain step and does not count
                self._schedule = [False, *[True, False] * _PAIRS]
                self._turns = {True: [], False: []}
        return logs

    def _run_plainly(self, iterator: Any, steps: int) -> Logs:
        for _ in range(steps):
            logs = self._plain_step(iterator)
        return logs

    def _take_turn(self, iterator: Any, steps: int) -> Logs:
        with_plan = self._schedule.pop(0)
        logs, seconds = _timed(self.inner.run if with_plan else self._run_plainly, iterator, steps)
        if with_plan or self._turns[True]:
            self._turns[with_plan].append(seconds)
        if not self._schedule:
            self._judge()
        return logs

    def _judge(self) -> None:
        planned, plain = self._turns[True], self._turns[False]
        ratio = statistics.ratio_interval(planned, plain)
        if not ratio.surely_above(1 + self._margin):
            self._promised_seconds = _NEW_PROMISE * float(np.median(planned))
            return
        times = [formatting.format_seconds(float(np.median(own))) for own in (planned, plain)]
        self.note = (
            f"the plan was left for plain steps, because in turns its step took {times[0]} and a "
            f"plain one {times[1]}"
        )
        _LOGGER.warning("%s.", self.note.capitalize())


def _timed(
    run: Callable[[Any, int], Logs], iterator: Any, steps: int
) -> tuple[Logs, float]:
    """Returns the logs and the seconds per step."""
    began = time.perf_counter()
    logs = run(iterator, steps)
    wait_for(logs)
    return logs, (time.perf_counter() - began) / steps
