"""MemoryWatch: how much memory a training takes, all along."""

import contextlib
import threading
import time
from collections.abc import Iterator

from tfx_perf.hardware import host

_SAMPLING_SECONDS = 0.1
_MOST_SAMPLES = 2000
# Between two times that freed memory is returned: so many times as long as that takes, and no less.
_RETURN_RATIO, _LEAST_RETURN_SECONDS = 1000, 1.0


class MemoryWatch:
    """Samples this process's memory in a thread of its own, so that no step pays for it.

    A long training is sampled more rarely, so that the samples stay few. Now and then the allocator
    has to return what was freed: what it keeps, in pieces that are of use to nobody, grows in many
    a training, and is no leak.

    Attributes:
        samples: (when, on `time.perf_counter`'s clock, and bytes).
    """

    def __init__(self) -> None:
        """Prepares to watch."""
        self.samples: list[tuple[float, int]] = []
        self._interval_seconds = _SAMPLING_SECONDS
        self._ended = threading.Event()

    def stop(self) -> None:
        """Ends the watch."""
        self._ended.set()

    def run(self) -> None:
        """Samples until `stop` is called."""
        return_time = 0.0
        while not self._ended.wait(self._interval_seconds):
            began = time.perf_counter()
            if began >= return_time:
                host.return_freed_memory()
                ended = time.perf_counter()
                pause_seconds = _RETURN_RATIO * (ended - began)
                return_time = ended + max(_LEAST_RETURN_SECONDS, pause_seconds)
            self.samples.append((time.perf_counter(), host.anonymous_memory_bytes()))
            if len(self.samples) >= _MOST_SAMPLES:
                del self.samples[1::2]
                self._interval_seconds *= 2


@contextlib.contextmanager
def watching() -> Iterator[MemoryWatch]:
    """Watches this process's memory inside a `with` block."""
    watch = MemoryWatch()
    thread = threading.Thread(target=watch.run, name="memory watch", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        watch.stop()
        thread.join()
