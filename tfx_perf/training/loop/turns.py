"""Runs plans in turns: times blocks of calls of several train functions inside one `fit`."""

import dataclasses
import time
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from tfx_perf.training.fit.timer import wait_for
from tfx_perf.training.keras_api.base_api import KerasApi
from tfx_perf.training.replicas.sync import Sync

BLOCK_SECONDS = 0.12
# Fewest calls in a block, including the first, which is not timed.
BLOCK_CALLS = 4


@dataclasses.dataclass(frozen=True)
class Turn:
    """The train function of a block, which receives Keras' iterator, and its steps per call."""

    function: Callable[[Any], Any]
    steps_per_execution: int


Schedule = Generator[Turn, float, None]


class Turns:
    """Runs the blocks that a schedule asks for, and ends `fit` when the schedule ends.

    The schedule is a generator: it yields the next turn, and receives the median seconds per
    step of the block. All blocks share one iterator over the data: with a `fit` per block, each
    would refill its shuffle buffer and tune its pipeline again, and tf.data may stall when an
    iterator is destroyed.
    """

    def __init__(self, model: Any, schedule: Schedule, *, sync: Sync) -> None:
        """Starts the first turn; `fit` must follow. The chief's times hold for all workers."""
        self._model, self._sync = model, sync
        self._schedule = schedule
        self._begin(next(schedule))

    def callback(self, keras_api: KerasApi) -> Any:
        """Returns the callback to give to `fit`, in the model's Keras API."""
        return keras_api.callback(on_train_batch_end=self._on_batch_end)

    def _begin(self, turn: Turn) -> None:
        self._turn = turn
        self._call_seconds: list[float] = []
        self._began: float | None = None  # the first call is not counted
        self._model.train_function = turn.function

    def _on_batch_end(self, batch: int, logs: Any = None) -> None:
        wait_for(logs)
        if self._began is not None:
            self._call_seconds.append(time.perf_counter() - self._began)
        has_enough = len(self._call_seconds) >= BLOCK_CALLS - 1
        is_over = has_enough and sum(self._call_seconds) >= BLOCK_SECONDS
        if self._sync.broadcast(is_over):
            call_seconds = self._sync.broadcast(float(np.median(self._call_seconds)))
            try:
                self._begin(self._schedule.send(call_seconds / self._turn.steps_per_execution))
            except StopIteration:
                self._model.stop_training = True
            return
        self._began = time.perf_counter()  # excludes the time of the broadcasts

