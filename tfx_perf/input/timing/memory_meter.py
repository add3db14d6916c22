"""How much memory a piece of work really takes."""

import gc
from types import TracebackType

from tfx_perf import periodic
from tfx_perf.hardware import host

_SAMPLING_SECONDS = 0.02


class MemoryMeter:
    """Measures how far this process grows inside a `with` block, at any time and at most.

    What an allocator keeps of memory that was freed before would hide growth, so it is given
    back to the system first. Pages of files (libraries, mapped data) do not count: the
    system takes them back when it needs them. The peak is sampled every 20 ms by a thread,
    because resetting the kernel's own peak would disturb whoever else reads it.
    """

    def __enter__(self) -> "MemoryMeter":
        self.restart()
        self._sampling = periodic.calling(self.growth_bytes, seconds=_SAMPLING_SECONDS)
        self._sampling.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._sampling.__exit__(kind, error, traceback)

    def restart(self) -> None:
        """Counts from now on, where memory was freed that would hide growth."""
        gc.collect()
        host.return_freed_memory()
        self._before_bytes = host.anonymous_memory_bytes()
        self._peak_bytes = self._before_bytes

    def growth_bytes(self) -> int:
        """Returns how much more memory the process has now than at the start."""
        now_bytes = host.anonymous_memory_bytes()
        self._peak_bytes = max(self._peak_bytes, now_bytes)
        return now_bytes - self._before_bytes

    def settled_growth_bytes(self) -> int:
        """Returns the growth without memory that was freed meanwhile."""
        host.return_freed_memory()
        return self.growth_bytes()

    @property
    def peak_growth_bytes(self) -> int:
        """The largest growth seen."""
        return self._peak_bytes - self._before_bytes
