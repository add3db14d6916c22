"""StepTimer: when each call of the train function began and ended."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

# Steps at the start of a fit that no steady-state figure counts: tracing, allocation,
# filling of buffers.
_WARM_UP_STEPS = 20
_FEWEST_CALLS = 3


def wait_for(logs: Any) -> None:
    """Waits until the call that returned `logs` is done; accelerators return before that."""
    if logs and tf.config.list_physical_devices("GPU"):
        float(next(iter(logs.values())))


@dataclasses.dataclass(frozen=True)
class _Call:
    epoch: int
    steps: int
    begin: float
    end: float


class StepTimer:
    """Times the calls of the train function, from Keras callbacks.

    A call's time runs from the end of the call before it in the same epoch, so that the
    wait for input and the host's own work count.
    """

    def __init__(
        self,
        *,
        steps_in_call: Callable[[], int],
        stop_when: "Callable[[StepTimer], bool] | None" = None,
    ) -> None:
        """Makes a timer.

        Args:
            steps_in_call: returns how many steps the call that has just ended took.
            stop_when: asked after every call; True ends the fit.
        """
        self._steps_in_call = steps_in_call
        self._stop_when = stop_when
        self._calls: list[_Call] = []
        self._epoch = 0
        self._begin = 0.0
        self._callback: Any = None

    def callback(self, callbacks: Any) -> Any:
        """Returns the callback to give to `fit`.

        Args:
            callbacks: the `callbacks` module of the model's Keras line.
        """
        callback = callbacks.LambdaCallback(
            on_epoch_begin=self._on_epoch_begin,
            on_train_batch_begin=self._on_batch_begin,
            on_train_batch_end=self._on_batch_end,
        )
        callback._supports_tf_logs = True  # else tf_keras copies the logs to NumPy each batch
        self._callback = callback
        return callback

    def _on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def _on_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begin = time.perf_counter()

    def _on_batch_end(self, batch: int, logs: Any = None) -> None:
        wait_for(logs)
        steps = self._steps_in_call()
        if steps:  # none are run where a resumed training passes over what is done
            self._calls.append(_Call(self._epoch, steps, self._begin, time.perf_counter()))
        if self._stop_when is not None and self._stop_when(self):
            self._callback.model.stop_training = True

    @property
    def step_count(self) -> int:
        """Steps that were run."""
        return sum(call.steps for call in self._calls)

    @property
    def first_call_seconds(self) -> float:
        """Duration of the first call: tracing and compiling, and its steps."""
        return self._calls[0].end - self._calls[0].begin if self._calls else 0.0

    @property
    def first_call_steps(self) -> int:
        """Steps of the first call."""
        return self._calls[0].steps if self._calls else 0

    @property
    def first_call_end(self) -> float | None:
        """When the first call ended, on `time.perf_counter`'s clock; None before."""
        return self._calls[0].end if self._calls else None

    def series(self) -> list[tuple[int, float]]:
        """Returns (steps done, seconds per step) for every call."""
        done, points, previous = 0, [], None
        for call in self._calls:
            same_epoch = previous is not None and previous.epoch == call.epoch
            begin = previous.end if same_epoch else call.begin
            done += call.steps
            points.append((done, (call.end - begin) / call.steps))
            previous = call
        return points

    def steady_seconds(self) -> list[float]:
        """Returns the seconds per step of the calls after warm-up.

        The first call never counts; nor do the first 20 steps, unless little is left.
        """
        points = self.series()[1:]
        steady = [seconds for done, seconds in points if done > _WARM_UP_STEPS]
        return steady if len(steady) >= len(points) / 2 else [seconds for _, seconds in points]

    def host_share(self) -> float | None:
        """Returns the share of the steps' time that passes between the calls, after the first.

        There Keras and the callbacks run, in Python. None before two calls in an epoch.
        """
        pairs = [
            (before, call)
            for before, call in zip(self._calls, self._calls[1:], strict=False)
            if before.epoch == call.epoch
        ]
        total = sum(call.end - before.end for before, call in pairs)
        return sum(call.begin - before.end for before, call in pairs) / total if total else None

    def settled_seconds(self) -> float:
        """Returns the median seconds per step after the first call; 0 before three such calls."""
        seconds = [seconds for _, seconds in self.series()[1:]]
        return float(np.median(seconds)) if len(seconds) >= _FEWEST_CALLS else 0.0


def percentile(samples: list[float], share: float) -> float | None:
    """Returns the percentile of the samples, None if there are none."""
    return float(np.percentile(samples, share)) if samples else None
