"""The memory that a training takes: its peak, along the training, and beside what was there before.

What ran before in a process must not make a difference: what it has left is no part of the
training, and what it has freed is no gift to it. Freed memory is returned to the system before the
training, but for that of TensorFlow's allocator for large tensors (with oneDNN on a CPU), which
keeps all that it has ever had, for its next tensors.
"""

import contextlib
import dataclasses
import gc
import time
from collections.abc import Iterator, Sequence

import tensorflow as tf

from tfx_perf.core import periodic
from tfx_perf.hardware import devices, host
from tfx_perf.tf_internals import devices as tf_devices
from tfx_perf.training.plan import TrainingPlan

_ALLOCATOR = "CPU:0"
_SAMPLING_SECONDS = 0.1
_MOST_SAMPLES = 2000
# Between two times that freed memory is returned: so long, so much of the time that has passed, and
# so many times the processor's time that the last one took.
_RETURN_SECONDS, _RETURN_SHARE, _RETURN_RATIO = 2.0, 0.04, 200

_EARLIER_PEAKS: dict[str, int] = {}  # of allocators that were restarted, in bytes
_HIGHEST_PEAKS: dict[str, int] = {}  # of all trainings of this process, before the last reset

Sample = tuple[float, int]


def _allocators() -> list[str]:
    found = devices.accelerators()
    return [f"{device.device_type}:{index}" for index, device in enumerate(found)]


def _peak(allocator: str) -> int:
    return tf.config.experimental.get_memory_info(allocator)["peak"]


def reset_peak_memory() -> None:
    """Starts a new measurement of the peak."""
    _EARLIER_PEAKS.clear()
    for allocator in _allocators():
        with contextlib.suppress(ValueError):  # an allocator without statistics
            _HIGHEST_PEAKS[allocator] = max(_peak(allocator), _HIGHEST_PEAKS.get(allocator, 0))
            tf.config.experimental.reset_memory_stats(allocator)
    host.reset_resident_peak()


def restart_peak(allocator: str) -> None:
    """Starts an allocator's peak anew; `peak_memory_bytes` keeps the old one in mind.

    Args:
        allocator: of a device, e.g. `GPU:0`.
    """
    _EARLIER_PEAKS[allocator] = max(_peak(allocator), _EARLIER_PEAKS.get(allocator, 0))
    tf.config.experimental.reset_memory_stats(allocator)


def peak_memory_bytes() -> int | None:
    """Returns the peak since `reset_peak_memory`, None if unknown.

    On accelerators the allocator's, the largest over the devices. On a CPU the process's
    resident set: TensorFlow's default CPU allocator does not count small tensors.
    """
    if not tf.config.list_physical_devices("GPU"):
        return peak_rss_bytes()
    peaks = list(_EARLIER_PEAKS.values())
    for allocator in _allocators():
        with contextlib.suppress(ValueError):
            peaks.append(_peak(allocator))
    return max(peaks, default=None)


def peak_rss_bytes() -> int | None:
    """Returns the peak of the resident set since `reset_peak_memory`, None if not on Linux."""
    return host.resident_peak_bytes()


def has_memory_for_as_much_again() -> bool:
    """Returns whether the host has left what this process took at its peak."""
    return host.available_memory_bytes() > (peak_rss_bytes() or 0)


@dataclasses.dataclass(frozen=True)
class HeldMemory:
    """The host memory of this process before a training.

    Attributes:
        anonymous_bytes: what belongs to no file, after freed memory has been returned.
        tensor_bytes: the large tensors among it.
        kept_bytes: what the allocator keeps for such tensors, those included.
    """

    anonymous_bytes: int
    tensor_bytes: int
    kept_bytes: int

    @classmethod
    def now(cls) -> "HeldMemory":
        """Returns what this process holds; opens no device."""
        gc.collect()
        host.return_freed_memory()
        now_bytes = kept_bytes = 0
        if tf_devices.are_open():  # else there is no tensor yet
            now_bytes, kept_bytes = _now_and_peak()
            kept_bytes = max(kept_bytes, _HIGHEST_PEAKS.get(_ALLOCATOR, 0))
        return cls(host.anonymous_memory_bytes(), now_bytes, kept_bytes)

    @property
    def used_bytes(self) -> int:
        """The memory in use: what the allocator keeps for its next tensors is not."""
        return self.anonymous_bytes - (self.kept_bytes - self.tensor_bytes)

    def taken_beside(self, peak_bytes: int, *, leftover_bytes: int) -> int | None:
        """Returns the peak of what a training takes beside this; call it at its end.

        In bytes, None if unknown. On a GPU, what its allocator had at the peak: memory that others
        have freed is free there.

        Args:
            peak_bytes: of the memory that belongs to no file.
            leftover_bytes: of that, what has come since and is no part of the training.
        """
        if tf.config.list_physical_devices("GPU"):
            return peak_memory_bytes()
        # Of what the allocator kept, the training's tensors took so much again.
        again_bytes = min(self.kept_bytes, _now_and_peak()[1]) - self.tensor_bytes
        return max(0, peak_bytes - self.anonymous_bytes - leftover_bytes + again_bytes)


def _now_and_peak() -> tuple[int, int]:
    with contextlib.suppress(ValueError):  # without oneDNN it counts nothing, and keeps nothing
        found = tf.config.experimental.get_memory_info(_ALLOCATOR)
        return found["current"], found["peak"]
    return 0, 0


class MemoryWatch:
    """Samples this process's memory in a thread of its own, so that no step pays for it.

    Now and then the allocator has to return what was freed: what it keeps, in pieces that are of
    use to nobody, grows in many a training, and is no leak.

    Its peak is that of memory that belongs to no file: how much of the libraries' files is resident
    depends on what the process did before.

    Attributes:
        samples: (when, on `time.perf_counter`'s clock, and bytes); taken more rarely in a long
            training, so that they stay few.
        settled: the same, only those without freed memory.
        peak_bytes: the most memory at once, also between two samples.
    """

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.settled: list[Sample] = []
        self.peak_bytes = 0
        self._most_file_bytes = 0
        self._interval_seconds = 0.0
        self._began = self._sample_time = self._return_time = time.perf_counter()

    def look(self) -> None:
        """Takes a sample if it is time for one."""
        now = time.perf_counter()
        if now < self._sample_time:
            return
        self._sample_time = now + self._interval_seconds
        is_settled = now >= self._return_time
        if is_settled:
            spent = time.thread_time()
            host.return_freed_memory()
            took = time.thread_time() - spent  # on a busy machine it may wait for long
            pauses = _RETURN_SECONDS, _RETURN_SHARE * (now - self._began), _RETURN_RATIO * took
            self._return_time = now + max(pauses)
        memory = host.resident_memory()
        self.peak_bytes = max(self.peak_bytes, memory.anonymous_bytes)
        self._most_file_bytes = max(self._most_file_bytes, memory.file_bytes)
        sample = time.perf_counter(), memory.anonymous_bytes
        self.samples.append(sample)
        if is_settled:
            self.settled.append(sample)
        if len(self.samples) >= _MOST_SAMPLES:
            del self.samples[1::2]
            self._interval_seconds = 2 * max(self._interval_seconds, _SAMPLING_SECONDS)

    def end(self) -> None:
        """Adds to the peak what the kernel has seen between the samples.

        The kernel counts pages of files, too. Less the most of these, which need not have been at
        the same time, that is no more than there was.
        """
        memory = host.resident_memory()
        most_file_bytes = max(self._most_file_bytes, memory.file_bytes)
        between = (peak_rss_bytes() or 0) - most_file_bytes
        self.peak_bytes = max(self.peak_bytes, memory.anonymous_bytes, between)


@contextlib.contextmanager
def watching() -> Iterator[MemoryWatch]:
    """Watches this process's memory inside a `with` block, from its start on."""
    watch = MemoryWatch()
    reset_peak_memory()
    with periodic.calling(watch.look, seconds=_SAMPLING_SECONDS):
        yield watch
    watch.end()


class Leftovers:
    """What trials leave in the memory of the process that trains: no part of the training.

    XLA and TensorFlow do not give back what they took to compile a program, whether or not that is
    used again; with an LSTM it was 200 MiB. The training needs what the plan's own program takes.
    """

    def __init__(self) -> None:
        """Begins; what is there now has been there before the trials."""
        self._began = self._now = HeldMemory.now().used_bytes
        self._taken: list[tuple[TrainingPlan, int]] = []

    @contextlib.contextmanager
    def of(self, plans: Sequence[TrainingPlan]) -> Iterator[None]:
        """Counts what stays of the context as that of plans that share a traced function."""
        before = self._now
        yield
        self._now = HeldMemory.now().used_bytes
        self._taken += [(plan, self._now - before) for plan in plans]

    def beside(self, plan: TrainingPlan) -> int:
        """Returns the bytes that stay beside those of a plan; call it when the trials are over."""
        own = (
            taken
            for tried, taken in self._taken
            if tried.model_copy(update={"steps_per_call": plan.steps_per_call}) == plan
        )
        return max(0, HeldMemory.now().used_bytes - self._began - next(own, 0))
