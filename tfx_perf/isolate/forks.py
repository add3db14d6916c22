"""Forks this process, as long as it has done nothing but imports.

A fork has all modules at once; a fresh interpreter takes ten seconds to import TFX. But code may
wait for threads that a fork lacks, so all threads must come from imports, and survive the fork.
"""

import atexit
import contextlib
import fcntl
import gc
import io
import logging
import os
import pathlib
import signal
import stat
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from tfx_perf.core import console

_TASKS = pathlib.Path("/proc/self/task")
# Prefixes of the names of gRPC's threads, in ML Metadata's client and in Beam.
_RUNNING = ("grpc", "event_engine", "lifeguard")
_STANDARD_STREAMS = 0, 1, 2

LEFT_THREADS_SECONDS = 30.0
"""How long remaining threads of the user's code may run, if others wait for the process."""


def _thread_count() -> int:
    return sum(1 for _ in _TASKS.iterdir()) if _TASKS.exists() else 0


# Threads of modules that are imported later count as work.
_import_threads = _thread_count()


def note_imports() -> None:
    """Counts all threads as those of imports; for a process that has done nothing else yet."""
    global _import_threads  # noqa: PLW0603 (so are the threads)
    _import_threads = _thread_count()


def may_fork() -> bool:
    """Returns whether this process has done nothing but imports, as far as can be seen."""
    if threading.active_count() > 1 or not 0 < _thread_count() <= _import_threads:
        return False
    names = (path.joinpath("comm").read_text() for path in _TASKS.iterdir())
    if any(name.startswith(_RUNNING) for name in names):
        return False
    if "tensorflow" not in sys.modules:
        return True
    from tfx_perf.tf_internals import devices

    return not devices.are_open()


class Forked:
    """A fork of this process, with the methods of `subprocess.Popen` that its parent needs."""

    def __init__(self, run: Callable[[], None]) -> None:
        """Forks; the fork only calls `run`, in its own session, without the terminal."""
        self._code: int | None = None
        console.flush()  # otherwise buffers would be written twice
        self.pid = os.fork()
        if not self.pid:
            try:
                _leave_parent()
                run()
            finally:
                os._exit(0)  # exit functions run in the parent alone

    def poll(self) -> int | None:
        """Returns the exit code, None while the fork runs."""
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        """Returns the exit code, negative if a signal ended the fork."""
        code = self._wait(0)
        assert code is not None  # it was waited for
        return code

    def send_signal(self, number: int) -> None:
        """Sends it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def _wait(self, options: int) -> int | None:
        if self._code is None:
            try:
                ended, status = os.waitpid(self.pid, options)
            except ChildProcessError:  # other code has waited, or SIGCHLD is ignored
                ended, status = self.pid, 0
            if ended:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code


def _leave_parent() -> None:
    os.setsid()
    atexit._clear()  # the parent's exit functions are not to run here
    atexit.register(logging.shutdown)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    with open(os.devnull, "r+b", 0) as nowhere:
        for stream in _STANDARD_STREAMS:
            os.dup2(nowhere.fileno(), stream)
    forget_streams()


def forget_streams() -> None:
    """Resets Python's streams to the standard streams, whatever the parent had instead."""
    sys.stdout, sys.stderr = map(console.stream_to, (1, 2))


def forget_logging() -> None:
    """Resets logging to that of a fresh interpreter, whatever the parent had set."""
    for handler in logging.root.handlers[:]:
        logging.root.removeHandler(handler)
    logging.root.setLevel(logging.WARNING)


def end(code: int, *, within_seconds: float | None) -> NoReturn:
    """Ends this process as an interpreter does, but without tearing down modules.

    Python's teardown of TensorFlow and TFX takes seconds, and may hang. Remaining threads may run
    for `within_seconds` (None: no limit).
    """
    if within_seconds is not None:
        late = threading.Timer(within_seconds, os._exit, [code])
        late.daemon = True
        late.start()
    end_as_an_interpreter()
    os._exit(code)


def end_as_an_interpreter() -> None:
    """Waits for threads, runs exit functions and flushes files, which `os._exit` does not."""
    # As at the end of a process of `multiprocessing`. Also ends threads of idle pools, which would
    # otherwise wait for work forever.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if not _has_file_to_write():
        return  # looking at a million objects takes a second: a fork gets its own copy of each
    for each in gc.get_objects():
        if type(each) in (io.TextIOWrapper, io.BufferedWriter):
            with contextlib.suppress(Exception):  # closed, or a full disk
                each.flush()


def _has_file_to_write() -> bool:
    """Whether a file or pipe is open for writing, besides standard streams and our own pipe."""
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # the folder itself is closed by now
            flags, mode = fcntl.fcntl(number, fcntl.F_GETFL), os.fstat(number).st_mode
            # Our own, which wakes the server, is not blocking; a pipe of `subprocess` is.
            is_pipe = stat.S_ISFIFO(mode) and not flags & os.O_NONBLOCK
            is_written = flags & os.O_ACCMODE and (is_pipe or stat.S_ISREG(mode))
            if is_written and number not in _STANDARD_STREAMS:
                return True
    return False
