"""Trains the same model in several processes, of which only one runs at a time.

A shared host is faster in one minute than in the next. Each training has a turn every few seconds
and is stopped (SIGSTOP) in between, so that changes of the host affect all trainings.
`tfx_perf.components.in_turns` takes turns inside of `fit`, block by block; here one of the
trainings is stock `fit`, which must stay unchanged.
"""

import contextlib
import os
import pathlib
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any

from benchmarks.training.clock import Clock
from tfx_perf.core import errors

_BLOCK_SECONDS = 3.0
_FEWEST_CALLS = 4
_WARM_UP_STEPS, _WARM_UP_SECONDS = 20, 3.0
_POLL_SECONDS = 0.02

Train = Callable[[pathlib.Path], dict[str, Any]]


def train_in_turns(
    trainings: Sequence[Train], *, rounds: int, start_seconds: float
) -> list[tuple[dict[str, Any], list[float], float]]:
    """Trains, and times blocks of steps in turns (A B C, C B A, ...).

    Args:
        trainings: functions that run a training in a child process, with a `Clock` at the path
            that they receive, and return its result.
        rounds: blocks of each.
        start_seconds: how long a training may take to its first step.

    Returns:
        For each training its result, the seconds per step of its blocks, and the seconds from its
        start to its first step.

    Raises:
        UserError: a training raised it.
        MeasurementError: a training raised it, ended early, or did not begin.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        futures.ThreadPoolExecutor(max_workers=len(trainings)) as pool,
        contextlib.ExitStack() as ended,
    ):
        runners, starts = [], []
        for index, train in enumerate(trainings):
            path = pathlib.Path(folder, f"clock-{index}")
            began = time.monotonic()
            runner = _Runner(Clock(path), pool.submit(train, path))
            ended.callback(runner.end)
            starts.append(runner.first_step(start_seconds) - began)
            runners.append(runner)
        blocks: list[list[float]] = [[] for _ in runners]
        for index in range(rounds):
            turn = list(zip(runners, blocks, strict=True))
            for runner, own in turn[:: -1 if index % 2 else 1]:
                own.append(runner.block())
        results = []
        for runner in runners:
            runner.end()
            results.append(runner.result())
    return list(zip(results, blocks, starts, strict=True))


class _Runner:
    """One training, which is stopped except during its turns."""

    def __init__(self, clock: Clock, training: futures.Future) -> None:
        self._clock = clock
        self._training = training

    def first_step(self, timeout_seconds: float) -> float:
        """Stops the training once it is warm; returns the time when its first call ended."""
        deadline = time.monotonic() + timeout_seconds
        first = None
        while True:
            steps, seconds = self._read()
            if steps and first is None:
                first = seconds
            if steps >= _WARM_UP_STEPS and seconds > first + _WARM_UP_SECONDS:
                os.killpg(self._clock.process, signal.SIGSTOP)
                return first
            if first is None and time.monotonic() > deadline:
                raise errors.MeasurementError(
                    f"A training took longer than {timeout_seconds:g} seconds to its first step."
                )
            time.sleep(_POLL_SECONDS)

    def block(self) -> float:
        """Lets the training run for a while; returns its seconds per step."""
        with self._running():
            first_steps, began = before = self._read()
            while (first_steps, began) == before:  # skips the call that was stopped
                time.sleep(_POLL_SECONDS)
                first_steps, began = self._read()
            calls, steps, seconds = 0, first_steps, began
            while calls < _FEWEST_CALLS or seconds < began + _BLOCK_SECONDS:
                time.sleep(_POLL_SECONDS)
                now, seconds = self._read()
                calls += now > steps
                steps = now
        return (seconds - began) / (steps - first_steps)

    def end(self) -> None:
        """Makes the training end as if it were finished."""
        self._clock.end()
        with contextlib.suppress(ProcessLookupError):
            self._signal(signal.SIGCONT)

    def result(self) -> dict[str, Any]:
        return self._training.result()

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        self._signal(signal.SIGCONT)
        try:
            yield
        finally:
            self._signal(signal.SIGSTOP)

    def _signal(self, number: int) -> None:
        if self._clock.process:  # otherwise it has not begun
            os.killpg(self._clock.process, number)

    def _read(self) -> tuple[int, float]:
        if self._training.done():
            self._training.result()
            raise errors.MeasurementError("A training ended early.")
        return self._clock.read()
