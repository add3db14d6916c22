"""StepTimer: when each call of the train function began and ended."""

import array
import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tfx_perf.core.interception import replacing
from tfx_perf.training.keras_api.base_api import KerasApi
from tfx_perf.training.measuring.communication import CommunicationMeter

# Steps at the start of a fit that steady-state figures exclude: tracing, allocation,
# filling of buffers.
_WARM_UP_STEPS = 20
_FEWEST_CALLS = 3


@functools.cache
def _has_gpu() -> bool:
    return bool(tf.config.list_physical_devices("GPU"))


def wait_for(logs: Any) -> None:
    """Waits until the call that returned `logs` is done; accelerators return before that."""
    if logs and _has_gpu():
        float(next(iter(logs.values())))


class StepTimer:
    """Times the calls of the train function.

    A call's time runs from the end of the call before it in the same epoch, so that the wait for
    input and the host's own work count. Saving checkpoints does not count.
    """

    def __init__(self, *, observer: CommunicationMeter | None = None) -> None:
        """Begins; the observer gets the step counts at which figures begin or cease to count."""
        self._observer = observer or CommunicationMeter()
        self._done = 0  # steps
        self._is_warm = False
        # One entry per call. Arrays, because there may be ten million calls: they take 48 bytes a
        # call and give the garbage collector nothing to visit.
        self._epochs, self._steps = array.array("q"), array.array("q")
        self._begins, self._ends = array.array("d"), array.array("d")
        self._saves, self._cpu_ends = array.array("d"), array.array("d")
        self._saved_seconds = 0.0
        self._epoch = 0
        self._begin = 0.0
        self.last_logs: Any = None

    @contextlib.contextmanager
    def observing(self, keras_api: KerasApi, *, steps_per_execution: int) -> Iterator[Any]:
        """Times a `fit` in which no function of the model may be replaced; yields its callback."""
        callback = keras_api.callback(on_epoch_begin=self.on_epoch_begin)

        def followed_by(notify: Callable[..., None]) -> Callable[[Callable[..., None]], Any]:
            def making(original: Callable[..., None]) -> Callable[..., None]:
                def hook(container: Any, *args: Any, **kwargs: Any) -> None:
                    original(container, *args, **kwargs)
                    if any(each is callback for each in container.callbacks):
                        notify(*args, **kwargs)

                return hook

            return making

        owner = keras_api.callbacks.CallbackList
        begin = followed_by(lambda batch, logs=None: self.begin_call())
        end = followed_by(lambda batch, logs=None: self.end_call(steps_per_execution, logs))
        with (
            replacing(owner, "on_train_batch_begin", begin),
            replacing(owner, "on_train_batch_end", end),
        ):
            yield callback

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Makes the next call begin an epoch: its wait is not part of an earlier call's."""
        self._epoch = epoch

    def begin_call(self) -> None:
        """Begins a call. Not a Keras hook: Keras calls a hook of all callbacks if one has it."""
        if self._begins_epoch:
            self._observer.on_epoch_start(self._done)
        self._begin = time.perf_counter()

    def end_call(self, steps: int, logs: Any = None, *, save_seconds: float = 0.0) -> None:
        """Ends a call of `steps` steps; without any, there is no step time, and nothing is kept.

        `save_seconds` is the time of all saving so far.
        """
        if not steps:
            return
        wait_for(logs)
        begins_epoch = self._begins_epoch
        self._ends.append(time.perf_counter())
        self._cpu_ends.append(time.process_time())
        self._begins.append(self._begin)
        self._epochs.append(self._epoch)
        before, self._saved_seconds = self._saved_seconds, save_seconds
        self._saves.append(self._saved_seconds - before)
        self._steps.append(steps)  # appended last, see `call_count`
        self.last_logs = logs
        self._done += int(steps)  # may be NumPy's
        if begins_epoch:
            self._observer.on_epoch_started(self._done)
        if self._done >= _WARM_UP_STEPS and not self._is_warm:
            self._is_warm = True
            self._observer.on_warm(self._done)

    @property
    def _begins_epoch(self) -> bool:
        return not self._epochs or self._epochs[-1] != self._epoch

    @property
    def call_count(self) -> int:
        """Calls that have ended and are completely recorded."""
        return len(self._steps)

    def part(self, first: int, last: int) -> "StepTimer":
        """Returns a copy of some calls, for another thread to look at while this one trains.

        A slice is taken in one go under the GIL. Reading the arrays in place (NumPy, a memoryview)
        would make a concurrent `append` raise BufferError.
        """
        copy = StepTimer()
        copy._epochs, copy._steps = self._epochs[first:last], self._steps[first:last]
        copy._begins, copy._ends = self._begins[first:last], self._ends[first:last]
        copy._saves, copy._cpu_ends = self._saves[first:last], self._cpu_ends[first:last]
        return copy

    @property
    def step_count(self) -> int:
        """Steps of the calls that have ended; other threads may ask."""
        return self._done

    def steps_at(self, times: Sequence[float]) -> np.ndarray:
        """Returns the steps done at each `time.perf_counter` time, interpolated between calls."""
        return np.interp(times, self._ends, np.cumsum(self._steps))

    def compile_seconds(self) -> float:
        """Returns how much longer the first call took than its steps: tracing and compiling."""
        if not self._steps:
            return 0.0
        steps_seconds = self._steps[0] * (percentile(self.steady_seconds(), 50) or 0.0)
        return max(0.0, self._ends[0] - self._begins[0] - steps_seconds)

    @property
    def first_call_end(self) -> float | None:
        """When the first call ended, on `time.perf_counter`'s clock; None before."""
        return self._ends[0] if self._ends else None

    @property
    def last_call_end(self) -> float | None:
        """When the last call ended, on the same clock; None before the first."""
        return self._ends[-1] if self._ends else None

    def series(self, most: int | None = None) -> list[tuple[int, float]]:
        """Returns (steps done, seconds per step) of all calls or, evenly spaced, about `most`."""
        done, seconds = np.cumsum(self._steps), self._step_seconds()
        stride = max(1, len(done) // most) if most else 1
        return list(zip(done[::stride].tolist(), seconds[::stride].tolist(), strict=True))

    def steady_seconds(self) -> np.ndarray:
        """Returns the seconds per step after the first call and, if enough remain, 20 steps."""
        return self._step_seconds()[self._is_steady()]

    def mean_seconds(self) -> float | None:
        """Returns the mean of `steady_seconds`; None if there are none."""
        steady = self.steady_seconds()
        return float(np.mean(steady)) if len(steady) else None

    def mean_seconds_within_epochs(self) -> float | None:
        """Returns the mean without epochs' first calls, which wait for data, if there are more."""
        within = self._step_seconds()[self._is_steady() & self._is_within_epoch()]
        return float(np.mean(within)) if len(within) else self.mean_seconds()

    def cpu_seconds(self) -> float | None:
        """Returns the CPU time of a step, in all threads of the process; None if unknown."""
        counted = self._is_steady() & self._is_within_epoch()
        counted[:1] = False  # nothing is known before the first call
        if not np.any(counted):
            return None
        seconds = np.diff(self._cpu_ends, prepend=0.0)[counted]
        return float(np.sum(seconds) / np.sum(np.array(self._steps)[counted]))

    def epoch_start_seconds(self) -> float:
        """Returns how much the first calls of epochs add to the mean."""
        mean, within = self.mean_seconds() or 0.0, self.mean_seconds_within_epochs() or 0.0
        return max(0.0, mean - within)

    def host_share(self) -> float | None:
        """Returns the share of time between calls, in Keras and callbacks; None if unknown."""
        follows = self._is_within_epoch()
        total = float(np.sum(self._call_seconds()[follows]))
        calls = np.subtract(self._ends, self._begins) - np.array(self._saves)
        inside = float(np.sum(calls[follows]))
        return (total - inside) / total if total else None

    def settled_seconds(self) -> float:
        """Returns the median seconds per step after the first call; 0 before three such calls."""
        seconds = self._step_seconds()[1:]
        return float(np.median(seconds)) if len(seconds) >= _FEWEST_CALLS else 0.0

    def _is_steady(self) -> np.ndarray:
        after_first = np.arange(len(self._steps)) > 0
        steady = after_first & (np.cumsum(self._steps) > _WARM_UP_STEPS)
        return steady if np.sum(steady) >= np.sum(after_first) / 2 else after_first

    def _is_within_epoch(self) -> np.ndarray:
        return np.diff(self._epochs, prepend=-1) == 0

    def _call_seconds(self) -> np.ndarray:
        """Returns the seconds from the end of the call before, if that is of the same epoch."""
        before = np.roll(self._ends, 1)
        seconds = np.array(self._ends) - np.where(self._is_within_epoch(), before, self._begins)
        return seconds - np.array(self._saves)

    def _step_seconds(self) -> np.ndarray:
        return self._call_seconds() / self._steps


class TimedFit(NamedTuple):
    """A `fit` that has ended: Keras' History, and the timer of its calls."""

    history: Any
    timer: StepTimer


def percentile(samples: np.ndarray, share: float) -> float | None:
    """Returns the percentile of the samples, None if there are none."""
    return float(np.percentile(samples, share)) if len(samples) else None
