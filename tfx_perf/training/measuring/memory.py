"""A training's memory: its peak, its course over time, and its part beyond memory held before.

Earlier work in the process must not count: neither memory that it has kept, nor memory that it
has freed. Freed memory is returned to the system before the training, except by TensorFlow's
allocator for large tensors (with oneDNN on a CPU), which keeps all memory for its next tensors.
"""

import contextlib
import dataclasses
import gc
import time
from collections.abc import Iterator

import tensorflow as tf

from tfx_perf.core import periodic
from tfx_perf.hardware import devices, host
from tfx_perf.tf_internals import devices as tf_devices

_ALLOCATOR = "CPU:0"
_SAMPLING_SECONDS = 0.1
_MOST_SAMPLES = 2000
# Shortest pause before freed memory is returned again: the longest of these seconds, this share of
# the time that has passed, and this many times the processor time of the last return.
_RETURN_SECONDS, _RETURN_SHARE, _RETURN_RATIO = 2.0, 0.04, 200

_HIGHEST_PEAKS: dict[str, int] = {}  # of all trainings of this process, before the last reset

Sample = tuple[float, int]


def _allocators() -> list[str]:
    accelerators = devices.accelerators()
    return [f"{device.device_type}:{index}" for index, device in enumerate(accelerators)]


def _peak(allocator: str) -> int:
    return tf.config.experimental.get_memory_info(allocator)["peak"]


def reset_peak_memory() -> None:
    """Starts a new measurement of the peak."""
    for allocator in _allocators():
        with contextlib.suppress(ValueError):  # an allocator without statistics
            _HIGHEST_PEAKS[allocator] = max(_peak(allocator), _HIGHEST_PEAKS.get(allocator, 0))
            tf.config.experimental.reset_memory_stats(allocator)
    host.reset_resident_peak()


def peak_memory_bytes() -> int | None:
    """Returns the peak since `reset_peak_memory`, None if unknown.

    On accelerators it is the allocator's, the largest over the devices. On a CPU it is the
    process's resident set: TensorFlow's default CPU allocator does not count small tensors.
    """
    if not tf.config.list_physical_devices("GPU"):
        return host.resident_peak_bytes()
    peaks = []
    for allocator in _allocators():
        with contextlib.suppress(ValueError):
            peaks.append(_peak(allocator))
    return max(peaks, default=None)


def has_memory_for_as_much_again() -> bool:
    """Whether the host has as much memory left as this process took at its peak."""
    return host.available_memory_bytes() > (host.resident_peak_bytes() or 0)


@dataclasses.dataclass(frozen=True)
class MemoryBaseline:
    """The host memory of this process before a training."""

    anonymous_bytes: int  # not backed by files, after freed memory was returned
    tensor_bytes: int  # the large tensors among it
    kept_bytes: int  # the allocator's, for such tensors, those included

    @classmethod
    def now(cls) -> "MemoryBaseline":
        """Returns the memory that this process holds; opens no device."""
        gc.collect()
        host.return_freed_memory()
        now_bytes = kept_bytes = 0
        if tf_devices.are_open():  # otherwise there is no tensor yet
            now_bytes, kept_bytes = _now_and_peak()
            kept_bytes = max(kept_bytes, _HIGHEST_PEAKS.get(_ALLOCATOR, 0))
        return cls(host.anonymous_memory_bytes(), now_bytes, kept_bytes)

    @property
    def used_bytes(self) -> int:
        """Memory in use, without the allocator's reserve for its next tensors."""
        return self.anonymous_bytes - (self.kept_bytes - self.tensor_bytes)

    def taken_beside(self, peak_bytes: int, *, leftover_bytes: int) -> int | None:
        """Returns a training's peak beyond this memory, in bytes or None; call it at its end.

        On a GPU it is the allocator's, which does not count freed memory. `peak_bytes` are not
        backed by files; `leftover_bytes` of them came since and are not part of the training.
        """
        if tf.config.list_physical_devices("GPU"):
            return peak_memory_bytes()
        # Memory kept by the allocator that the training's tensors used again.
        again_bytes = min(self.kept_bytes, _now_and_peak()[1]) - self.tensor_bytes
        return max(0, peak_bytes - self.anonymous_bytes - leftover_bytes + again_bytes)


def _now_and_peak() -> tuple[int, int]:
    with contextlib.suppress(ValueError):  # without oneDNN it counts nothing, and keeps nothing
        allocated = tf.config.experimental.get_memory_info(_ALLOCATOR)
        return allocated["current"], allocated["peak"]
    return 0, 0


class MemoryWatch:
    """Samples this process's memory in a thread of its own, so that no step pays for it.

    Now and then the allocator is made to return freed memory: it keeps unused pieces, which grow in
    many trainings and are not a leak. The peak is of memory not backed by files: how much of the
    libraries' files is resident depends on earlier work of the process.
    """

    def __init__(self) -> None:
        self.samples: list[Sample] = []  # (`perf_counter` seconds, bytes); rarer in a long training
        self.settled: list[Sample] = []  # samples after freed memory was returned
        self.peak_bytes = 0  # the most at once, also between two samples
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
            took = time.thread_time() - spent  # without waits on a busy machine
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
        """Adds the kernel's peak between samples, less the most file pages: a lower bound."""
        memory = host.resident_memory()
        most_file_bytes = max(self._most_file_bytes, memory.file_bytes)
        between = (host.resident_peak_bytes() or 0) - most_file_bytes
        self.peak_bytes = max(self.peak_bytes, memory.anonymous_bytes, between)


@contextlib.contextmanager
def watching() -> Iterator[MemoryWatch]:
    """Watches this process's memory inside the context."""
    watch = MemoryWatch()
    reset_peak_memory()
    with periodic.calling(watch.look, seconds=_SAMPLING_SECONDS):
        yield watch
    watch.end()
