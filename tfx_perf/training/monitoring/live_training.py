"""LiveTraining: a running training's figures, for other threads."""

import collections
import functools
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tfx_perf.core.interception import FitCall
from tfx_perf.hardware import devices, host
from tfx_perf.memory import batches
from tfx_perf.training.fit.timer import StepTimer
from tfx_perf.training.loop.fit_loop import FitGuard, FitLoop
from tfx_perf.training.measuring import memory
from tfx_perf.training.measuring.collector import Pauses
from tfx_perf.training.measuring.communication import Totals
from tfx_perf.training.replicas import strategies
from tfx_perf.training.speedups import precision
from tfx_perf.training.tuning.choice import PlanChoice

RECENT_CALLS = 200
"""How many of the last calls of the train function the figures of a step are taken from."""

# Most calls, the last ones, whose step times are read, so that even a rare look is quick.
_TIMED_CALLS = 10_000


class _Look(NamedTuple):
    timer: StepTimer
    call_count: int
    step_count: int
    totals: Totals


class RecentWaits:
    """Keeps earlier looks, as far back as the last calls of the train function."""

    def __init__(self, *, calls: int) -> None:
        """Compares looks that are at least `calls` calls apart, once there have been that many."""
        self._calls = calls
        self._looks: collections.deque[_Look] = collections.deque()

    def shares(
        self, timer: StepTimer, *, step_count: int, totals: Totals
    ) -> tuple[float, ...] | None:
        """Looks again; returns each replica's share of waiting, None if too few calls were seen."""
        looks, now = self._looks, _Look(timer, timer.call_count, step_count, totals)
        if looks and looks[0].timer is not timer:
            looks.clear()
        looks.append(now)
        while len(looks) > 1 and looks[1].call_count <= now.call_count - self._calls:
            looks.popleft()
        then = looks[0]
        first = max(then.call_count, now.call_count - _TIMED_CALLS)
        step_seconds = timer.part(first, now.call_count).mean_seconds()
        if not then.step_count or not step_seconds:  # the first call traces
            return None
        passed_seconds = step_seconds * (now.step_count - then.step_count)
        pairs = zip(then.totals.wait_time_seconds, totals.wait_time_seconds, strict=True)
        return tuple(min(1.0, (after - before) / passed_seconds) for before, after in pairs)


class LiveCommunication(NamedTuple):
    """Reductions and waits of a process' replicas since it began."""

    totals: Totals
    wait_shares: tuple[float, ...] | None  # of a step, recently; None before two looks


class LiveTraining:
    """Looks at a training from another thread, and only on request.

    The training does nothing for it beyond what it does for its record. Nothing here reads the
    user's data, which would change the order in which the training gets them.
    """

    def __init__(
        self,
        call: FitCall,
        loop: FitLoop,
        *,
        choice: PlanChoice,
        recovery: FitGuard | None,
        totals: Callable[[], Totals | None],
        started: float,
    ) -> None:
        self.pauses: Pauses | None = None
        self._call = call
        self._loop = loop
        self._choice = choice
        self._recovery = recovery
        self._started = started
        self._totals = totals
        self._waits = RecentWaits(calls=RECENT_CALLS)
        self._began = time.time()
        self._lock = threading.Lock()  # of `_waits`: several threads may serve scrapes

    def figures(self) -> dict[str, float | None]:
        """Returns the known metrics, keyed by the catalogue; None is unknown."""
        timer = self._loop.timer
        recent = StepTimer()
        if timer:
            ended = timer.call_count
            recent = timer.part(max(0, ended - RECENT_CALLS), ended)
        steady = recent.steady_seconds()
        mean = float(np.mean(steady)) if len(steady) else None
        peak_bytes, batch_size = memory.peak_memory_bytes(), self._batch_size
        first_call_end = timer.first_call_end if timer else None
        return {
            "step_time_seconds": float(np.median(steady)) if len(steady) else None,
            "examples_per_second": batch_size / mean if batch_size and mean else None,
            "python_overhead_ratio": recent.host_share(),
            "input_wait_ratio": self._choice.input_wait_ratio,
            "time_to_first_step_seconds": first_call_end and first_call_end - self._started,
            "peak_memory_bytes": peak_bytes,
            "peak_memory_share_ratio": peak_bytes and peak_bytes / self._device_memory_bytes,
            "peak_rss_bytes": host.resident_peak_bytes(),
            "garbage_collection_seconds": self.pauses.seconds if self.pauses else None,
            "global_batch_size": batch_size,
            "replica_count": self._counts["replica_count"],
            "worker_count": self._counts["worker_count"],
            "train_step_count": self.step_count,
            "oom_count": self._recovery.oom_count if self._recovery else 0,
        }

    def communication(self) -> LiveCommunication | None:
        """Returns reductions and waits of this process' replicas; None if they are not measured."""
        totals, step_count = self._totals(), self.step_count
        with self._lock:
            timer = self._loop.timer
            if totals is None or timer is None:
                return None
            shares = self._waits.shares(timer, step_count=step_count, totals=totals)
        return LiveCommunication(totals, shares)

    @property
    def step_count(self) -> int:
        """Training steps run so far; a rollback starts a new count."""
        timer = self._loop.timer
        return timer.step_count if timer else 0

    @property
    def done_count(self) -> int:
        """Steps of the whole `fit` done so far, even before an interruption or a rollback."""
        before = self._recovery.step if self._recovery else None
        return (before or 0) + self.step_count

    @property
    def loss(self) -> float | None:
        """The running epoch's loss, as Keras shows it; None before the first call."""
        timer = self._loop.timer
        return _number((timer and timer.last_logs or {}).get("loss"))

    @property
    def learning_rate(self) -> float | None:
        """The optimizer's learning rate, by its schedule if it has one; None if it has none."""
        optimizer = self._call.model.optimizer
        # A schedule is called here, because tf_keras' legacy optimizers return it as it is.
        rate = getattr(optimizer, "learning_rate", None)
        return _number(rate(optimizer.iterations) if callable(rate) else rate)

    @property
    def progress_time(self) -> float:
        """When the last call ended or, before the first, training began; in seconds since 1970."""
        timer = self._loop.timer
        ended = timer and timer.last_call_end
        return time.time() - (time.perf_counter() - ended) if ended else self._began

    @property
    def labels(self) -> dict[str, str]:
        """Short labels of the training, which only a rollback to another plan changes."""
        model = self._call.model
        return {
            "plan": str(self._loop.plan if self._loop.timer else self._choice.plan),
            "precision": precision.policy_name(model),
            "model": model.name,
            "strategy": strategies.name(model.distribute_strategy),
            "keras": self._loop.keras_api.package,
        }

    @functools.cached_property
    def _counts(self) -> dict[str, int]:
        return strategies.counts(self._call.model.distribute_strategy)

    @functools.cached_property
    def _batch_size(self) -> int | None:
        """Examples in a step over all replicas, if known without reading data."""
        tried = self._choice.fit.get("batch_size")
        return int(tried) if tried else batches.declared_batch_size(self._call)

    @functools.cached_property
    def _device_memory_bytes(self) -> int:
        return devices.memory_bytes()


def _number(value: Any) -> float | None:
    if value is None:
        return None
    array = np.asarray(value)
    return float(array) if array.ndim == 0 else None
