"""Ends a child with its caller, and all descendants of the child with the child.

The kernel can end a process with its parent, but not its descendants: data workers, trials,
subprocesses. These are found by the child's session and by a mark in their environment, even if
they have lost their parent.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator

import psutil

MARK = "TFX_PERF_CHILD"
"""The variable with the marks of all children that a process descends from, the oldest first."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_SECONDS = 0.01
_PATIENCE_SECONDS = 10.0  # after that, a process must hang in the kernel


def end_with(parent: int) -> None:
    """Ends this process with its parent (a process id), at once if that has ended; Linux only."""
    signal_at_parents_end(signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("The parent process has ended.")


def signal_at_parents_end(number: int) -> None:
    """Has the kernel send this process a signal when its parent thread ends; Linux only."""
    _prctl(_PR_SET_PDEATHSIG, number)


def adopt_orphans() -> None:
    """Makes this process the parent of descendants that lose theirs; Linux only."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def with_mark(mark: str) -> str:
    """Returns the value of `MARK` for a child of this process."""
    return f"{os.environ.get(MARK, '')}:{mark}"


def end_all(child: int, mark: str) -> None:
    """Kills a child (the process id of a session leader) and its descendants, found by `mark`."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (left := [*_descendants(child, mark)]) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(_POLL_SECONDS)


def describe_exit(code: int) -> str:
    """Returns how a process has ended, given its exit code as in `subprocess`."""
    if code == -signal.SIGKILL:
        return "was killed (SIGKILL), by hand or because memory ran out"
    if code == -signal.SIGALRM:
        return "ran out of time (SIGALRM)"
    if code == -signal.SIGTERM:
        return "was ended (SIGTERM)"
    if code < 0:
        return f"crashed ({signal.Signals(-code).name})"
    return f"ended with exit code {code}"


def _descendants(child: int, mark: str) -> Iterator[psutil.Process]:
    below = set()
    with contextlib.suppress(psutil.Error):
        below = set(psutil.Process(child).children(recursive=True))
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):  # it has ended, or is another user's
            if process.status() != psutil.STATUS_ZOMBIE and (
                process in below
                or os.getsid(process.pid) == child
                or mark in process.environ().get(MARK, "")
            ):
                yield process


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value)
