"""MemoryWatch: how much memory a training takes, all along."""

import contextlib
import time
from collections.abc import Iterator

from tfx_perf import periodic
from tfx_perf.hardware import host
from tfx_perf.training.measuring import meters

_SAMPLING_SECONDS = 0.1
_MOST_SAMPLES = 2000
# Between two times that freed memory is returned: so long, so much of the time that has passed, and
# so many times the processor's time that the last one took.
_RETURN_SECONDS, _RETURN_SHARE, _RETURN_RATIO = 2.0, 0.04, 200

Sample = tuple[float, int]


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
        """Begins."""
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
        between = (meters.peak_rss_bytes() or 0) - most_file_bytes
        self.peak_bytes = max(self.peak_bytes, memory.anonymous_bytes, between)


@contextlib.contextmanager
def watching() -> Iterator[MemoryWatch]:
    """Watches this process's memory inside a `with` block, from its start on."""
    watch = MemoryWatch()
    meters.reset_peak_memory()
    with periodic.calling(watch.look, seconds=_SAMPLING_SECONDS):
        yield watch
    watch.end()
