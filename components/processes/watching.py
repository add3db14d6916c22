"""Processes that train together are watched: who may be lost, and whose end is that of all."""

import math
import time
from collections.abc import Callable, Sequence

from tfx_perf.components.processes.launching import Launched, Say

_POLL_SECONDS = 0.1
_TOGETHER_SECONDS = 20.0  # between the ends of workers, where nothing is wrong


def first_failure(
    launched: Launched,
    *,
    restarts: int,
    heartbeat_timeout_seconds: float,
    is_over: Callable[[], bool],
    say: Say,
) -> int | None:
    """Waits for processes; returns the first one without which the others cannot go on.

    Args:
        launched: the processes.
        restarts: how often those that may be lost are started again, all together.
        heartbeat_timeout_seconds: after which those that only serve, and give no heartbeat, are
            killed.
        is_over: asked now and then; once it says so, None is returned.
        say: as for `launching.started`.

    Returns:
        Its index; None if the training has ended well.
    """
    serving = {index for index, task in enumerate(launched.tasks) if task.may_be_lost}
    watch = _Served(serving, restarts=restarts, say=say) if serving else _Alike(say)
    while not is_over():
        launched.kill_silent(heartbeat_timeout_seconds)
        is_done, failed = watch.look(launched)
        if is_done:
            return failed
        time.sleep(_POLL_SECONDS)
    return None


class _Alike:
    """Watches workers that are alike, none of which may be lost."""

    def __init__(self, say: Say) -> None:
        self._say, self._first_end, self._is_told = say, math.inf, False

    def look(self, launched: Launched) -> tuple[bool, int | None]:
        """Returns whether they have ended, and which one has failed."""
        codes = launched.codes
        failed = [index for index, code in enumerate(codes) if code]
        if failed or all(code == 0 for code in codes):
            return True, failed[0] if failed else None
        if 0 in codes:
            self._tell([index for index, code in enumerate(codes) if code == 0])
        return False, None

    def _tell(self, ended: Sequence[int]) -> None:
        now = time.monotonic()
        self._first_end = min(self._first_end, now)
        if now > self._first_end + _TOGETHER_SECONDS and not self._is_told:
            self._is_told = True
            self._say(
                f"Worker {', '.join(map(str, ended))} has ended, and others still run. If they "
                "wait for it, end this command: all workers have to train."
            )


class _Served:
    """Watches a coordinator and those that serve it, of which some may be lost."""

    def __init__(self, may_be_lost: set[int], *, restarts: int, say: Say) -> None:
        self._may_be_lost, self._restarts, self._say = may_be_lost, restarts, say
        self._given_up: set[int] = set()

    def look(self, launched: Launched) -> tuple[bool, int | None]:
        """Returns whether they have ended, and which one has failed."""
        codes = launched.codes
        if codes[0] == 0:
            return True, None
        ended = {index for index, code in enumerate(codes) if code is not None}
        if needed := ended - self._may_be_lost:
            return True, max(needed)  # the coordinator's end may follow from a server's
        for index in sorted(ended - self._given_up):
            how = f"{launched.tasks[index].name.capitalize()} {launched.ending(index)}"
            if self._restarts:
                self._restarts -= 1
                self._say(f"{how}, and is started again.")
                launched.restart(index)
            else:
                self._given_up.add(index)
                if self._given_up != self._may_be_lost:
                    self._say(f"{how}. The others go on without it.")
        if self._given_up == self._may_be_lost:
            return True, min(self._given_up)
        return False, None
