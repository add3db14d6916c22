"""Stands between a parent and its child, so that nothing that the child has started is left.

The kernel can have a process end with its parent, but not what that process has started: data
workers, trials, the user's own subprocesses. The guard does nothing but wait, so that whoever of
the others is killed, it is there to end the rest.
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
from typing import NoReturn

import psutil

END = signal.SIGUSR1
"""Has a guard end the child and all that it has started, and then itself."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_HANDLED = {END, signal.SIGTERM, signal.SIGCHLD}
_POLL_SECONDS = 0.01
_PATIENCE_SECONDS = 10.0  # then a process hangs in the kernel


def end_with(parent: int, *, number: int = signal.SIGKILL) -> None:
    """Has the kernel send this process a signal when its parent ends; Linux only.

    Args:
        parent: its process id. If it has ended already, so does this process.
        number: of the signal.
    """
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        sys.exit("The parent is gone.")


def split(parent: int) -> None:
    """Makes two processes of this one: the guard, and the child, in which alone this returns.

    The guard ends as the child does, after it has killed what is left of the child's process
    group; if the child was killed by a signal, or the parent is gone, all that descends from the
    child. SIGTERM to the guard reaches the child. There must be no other thread yet.

    Args:
        parent: of this process; the guard ends with it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
    end_with(parent, number=END)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphans of the child become the guard's children
    guard = os.getpid()
    child = os.fork()
    if child:
        _guard(child)
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    end_with(guard)


def _guard(child: int) -> NoReturn:
    while True:
        number = signal.sigwait(_HANDLED)
        if number == END:
            _end_descendants()
            _end_as(-signal.SIGKILL)
        if number == signal.SIGTERM:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
                os.kill(child, signal.SIGCONT)  # where it is stopped it would not notice
        code = _reaped().get(child)
        if code is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            if code < 0:
                _end_descendants()
            _end_as(code)


def _reaped() -> dict[int, int]:
    """Returns the exit codes of the children that have ended, by their ids."""
    codes = {}
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            codes[ended[0]] = os.waitstatus_to_exitcode(ended[1])
    return codes


def _end_descendants() -> None:
    own = psutil.Process()
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (left := own.children(recursive=True)) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        _reaped()
        time.sleep(_POLL_SECONDS)


def _end_as(code: int) -> NoReturn:
    """Ends this process with an exit code, or if it is negative, by a signal."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the child has left one already
        with contextlib.suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)  # not of SIGKILL
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {-code})
        os.kill(os.getpid(), -code)
    os._exit(code)


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value)
