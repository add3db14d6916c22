"""Heartbeats of a process that only serves: if it hangs, its connections stay open."""

import contextlib
import os
import pathlib
import time
from collections.abc import Iterator

from tfx_perf.core import periodic

VARIABLE = "TFX_PERF_HEARTBEAT"
"""Names the file that each heartbeat touches."""

# A library may hold the GIL for seconds; a timeout is many times as long.
_PERIOD_SECONDS = 1.0
# Most that counts between two looks; for any longer, the looking process itself was stopped.
_LONGEST_LOOK_SECONDS = 1.0


@contextlib.contextmanager
def given() -> Iterator[None]:
    """Gives heartbeats while the context lasts, if `VARIABLE` is set."""
    name = os.environ.get(VARIABLE)
    if name is None:
        yield
        return
    path = pathlib.Path(name)
    path.touch()
    with periodic.calling(path.touch, seconds=_PERIOD_SECONDS):
        yield


class Listener:
    """Listens for the heartbeats of a process."""

    def __init__(self, path: pathlib.Path) -> None:
        """Removes the heartbeat file that an earlier process may have left."""
        path.unlink(missing_ok=True)
        self._path = path
        self._last: int | None = None
        self._silent_seconds = 0.0
        self._looked = time.monotonic()

    def silent_seconds(self) -> float:
        """Returns the time since the last heartbeat, 0 before any; each call adds 1 s at most."""
        now, beat = time.monotonic(), self._beat()
        if beat is None or beat != self._last:
            self._silent_seconds = 0.0
        else:
            self._silent_seconds += min(now - self._looked, _LONGEST_LOOK_SECONDS)
        self._last, self._looked = beat, now
        return self._silent_seconds

    def _beat(self) -> int | None:
        try:
            return self._path.stat().st_mtime_ns
        except OSError:
            return None
