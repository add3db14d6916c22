"""The terminal of a process: its own lines, its status, its last words; libraries get a log file.

TensorFlow, Beam, kfp and Google's clients print dozens of lines when they are imported, some of
them from C++ and before any of their settings takes effect. So descriptors are redirected.
"""

import atexit
import contextlib
import gc
import importlib
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import TextIO

from tfx_perf.core import errors

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130  # as a shell reports SIGINT
STATUS_SIGN = "..."
"""Precedes the status in the lines of `StatusLines`."""

STATUS_SECONDS = 10.0
"""Seconds without a line after which a status line is due."""

_STANDARD_OUTPUT, _STANDARD_ERROR = 1, 2
_LIBRARIES_LOGGERS = "absl", "tensorflow", "py.warnings"
_STATUS_VARIABLE = "TFX_PERF_STATUS"
# The longest wait, and its share of the time that the status has stayed the same: users need fewer
# lines in the second hour than in the first minute.
_LONGEST_STATUS_SECONDS, _STATUS_SHARE = 600.0, 0.25
_LAST_WORDS: list[str] = []

# Log lines of C++ libraries, except for the one before a library ends the process (F).
_OF_LIBRARY = (
    r"^(([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9.:]+: [IWE] |[IWE][0-9]{4} [0-9.:]+ +[0-9]+ )[^ ]+\.(cc|h)"
    r":[0-9]+\] |WARNING: All log messages before absl::InitializeLog\(\))"
)
_SIEVE_SECONDS = 1.0  # to wait for the last lines: another process may keep standard error open


@contextlib.contextmanager
def libraries(log_path: str | os.PathLike[str] | None = None) -> Iterator[TextIO]:
    """Sends standard error into a file, which is overwritten, while the context lasts.

    This includes processes that are started meanwhile. If an exception leaves the context, the
    file's path is printed; not for a `UserError`, whose message says everything. None means a
    temporary file, which stays only if its path was printed. Yields the original standard error,
    for the program's own lines. UserError: the file cannot be written.
    """
    log, path = _opened(log_path)
    is_needed = log_path is not None
    try:
        with _redirected(_STANDARD_ERROR, to=log) as (before,), stream_to(before) as terminal:
            try:
                yield terminal
            except errors.UserError:
                raise
            except Exception:
                is_needed = True
                terminal.write(f"Log: {path}\n")
                raise
    finally:
        os.close(log)
        if not is_needed:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def script(log_path: str | os.PathLike[str] | None = None) -> Iterator[TextIO]:
    """Does for a whole script what `libraries` does, and exits if the user got something wrong.

    A `UserError` then gives one line on standard error and exit code 2, as for `tfx-perf`.
    """
    program = os.path.basename(sys.argv[0])
    try:
        with libraries(log_path) as terminal:
            yield terminal
    except errors.UserError as error:
        tell_error(str(error), program=program)
        sys.exit(EXIT_USER_ERROR)
    except KeyboardInterrupt:
        tell_error("interrupted.", program=program)
        sys.exit(EXIT_INTERRUPTED)


@contextlib.contextmanager
def library_logs_to(log_path: str | os.PathLike[str] | None) -> Iterator[None]:
    """Moves what C++ libraries log from standard error into a file while the context lasts.

    Everything else still gets there, such as output of the user's code, and what a library says
    before it ends the process. Nothing is done if `sys.stderr` is another stream, as in pytest or
    under `tfx-perf launch`, no process can be started, or the file cannot be written. Lines are
    appended to the file, whose folder must exist; it stays only if not empty. None discards them.
    """
    with contextlib.ExitStack() as until:
        if _is_own_standard_error():
            with contextlib.suppress(OSError):
                pipe = until.enter_context(_log_filter(log_path))
                until.enter_context(_redirected(_STANDARD_ERROR, to=pipe))
        yield


@contextlib.contextmanager
def output_to_error() -> Iterator[None]:
    """Sends standard output of this process and those it starts to standard error."""
    with _redirected(_STANDARD_OUTPUT, to=_STANDARD_ERROR), contextlib.redirect_stdout(sys.stderr):
        yield


@contextlib.contextmanager
def output_to_file(log_path: str | os.PathLike[str]) -> Iterator[None]:
    """Appends standard output and error of this process to a file."""
    with (
        open(log_path, "ab", buffering=0) as log,
        _redirected(_STANDARD_OUTPUT, _STANDARD_ERROR, to=log.fileno()),
    ):
        yield


def leave_standard_error_to_libraries(log_path: str) -> TextIO:
    """Sends what Python code prints to standard error to standard output from now on.

    For a process whose standard error is a log, which is returned. The log still gets what
    libraries write to the descriptor, messages of TensorFlow's and absl's loggers, Python's
    warnings, and tracebacks of threads, for each of which a line that names `log_path` is printed.
    """
    log = sys.stderr
    handler = logging.StreamHandler(log)
    handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))

    def into_log(record: logging.LogRecord) -> bool:
        handler.handle(record)
        return False

    def traceback_into_log(failed: threading.ExceptHookArgs) -> None:
        error = failed.exc_value
        if error is None or isinstance(error, SystemExit):  # as Python does
            return
        name = failed.thread.name if failed.thread else "that has ended"
        print(f"Exception in thread {name}:", file=log)
        traceback.print_exception(error, file=log)
        reason = errors.in_one_line(error)
        print(f"Thread {name} has failed: {reason}. Log: {log_path}", file=sys.stderr)

    threading.excepthook = traceback_into_log
    logging.captureWarnings(True)
    with contextlib.suppress(ImportError):
        importlib.import_module("absl.logging")  # absl must create its own logger
    for name in _LIBRARIES_LOGGERS:
        logging.getLogger(name).addFilter(into_log)
    sys.stderr = stream_to(_STANDARD_OUTPUT)
    return log


def tell_error(error: str, *, program: str) -> None:
    """Writes what the user got wrong to standard error, as one line."""
    print(f"{program}: {' '.join(error.split())}", file=sys.stderr)


@contextlib.contextmanager
def status_watched() -> Iterator[Callable[[], str]]:
    """Keeps the status that this process and its children set while the context lasts.

    Yields a function that returns the status that was set last; empty if none was. An environment
    variable, which every child inherits, names its file.
    """
    before = os.environ.get(_STATUS_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="tfx-perf-status-") as folder:
        path = pathlib.Path(folder, "status")
        path.touch()
        os.environ[_STATUS_VARIABLE] = str(path)
        try:
            yield lambda: path.read_text(encoding="utf-8")
        finally:
            if before is None:
                del os.environ[_STATUS_VARIABLE]
            else:
                os.environ[_STATUS_VARIABLE] = before


def is_status_watched() -> bool:
    """Returns whether a process watches the status."""
    return _STATUS_VARIABLE in os.environ


def set_status(status: str) -> None:
    """Sets in a few words what is being done from now on; empty clears it. Never raises."""
    path = os.environ.get(_STATUS_VARIABLE)
    if path is None:
        return
    draft = f"{path}.{os.getpid()}-{threading.get_ident()}"
    with contextlib.suppress(OSError):  # the watching process has ended
        pathlib.Path(draft).write_text(" ".join(status.split()), encoding="utf-8")
        os.replace(draft, path)


class StatusLines:
    """Writes the status as a line if there was no line for some time.

    While the status stays the same, the lines become rarer.
    """

    def __init__(self, say: Callable[[str], object]) -> None:
        """Starts to wait; `say` is called with each line."""
        self._say = say
        self._work, self._since, self._last = "", time.monotonic(), time.monotonic()

    def put_off(self) -> None:
        """Restarts the wait, because the user has seen other output."""
        self._last = time.monotonic()

    def __call__(self, status: str) -> None:
        """Writes the status if it is due; the part after a colon says how far the work is."""
        status, now = status or "at work", time.monotonic()
        work = status.partition(":")[0]
        if work != self._work:
            self._work, self._since = work, now
        grown = min(_STATUS_SHARE * (now - self._since), _LONGEST_STATUS_SECONDS)
        if now - self._last >= max(STATUS_SECONDS, grown):
            self._last = now
            self._say(f"{STATUS_SIGN} {status}")


def say_at_exit(*lines: str) -> None:
    """Writes lines to standard error when the process ends, below all that libraries log."""
    atexit.unregister(_say_last_words)
    atexit.register(_say_last_words)
    _LAST_WORDS.extend(lines)


def end_without_collection() -> None:
    """Keeps the interpreter from collecting garbage once more when it ends.

    With the objects of TFX, TensorFlow and Beam that takes four seconds of a core, even after
    Ctrl-C. Finalizers of objects in a cycle are not called then; Python does not guarantee them.
    """
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)


def _say_last_words() -> None:
    for line in _LAST_WORDS:
        print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _redirected(*streams: int, to: int) -> Iterator[list[int]]:
    """Makes descriptors copies of `to`; yields copies of the originals."""
    flush()
    copies = [os.dup(stream) for stream in streams]
    for stream in streams:
        os.dup2(to, stream)
    try:
        yield copies
    finally:
        flush()
        for stream, before in zip(streams, copies, strict=True):
            os.dup2(before, stream)
            os.close(before)


def stream_to(descriptor: int) -> TextIO:
    """Returns a stream that writes lines to a descriptor, which stays open when it is closed."""
    return open(  # noqa: SIM115
        descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )


def flush() -> None:
    """Writes what the standard streams hold in their buffers. Never raises."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed, or without a file
            stream.flush()


def _opened(log_path: str | os.PathLike[str] | None) -> tuple[int, pathlib.Path]:
    if log_path is None:
        descriptor, name = tempfile.mkstemp(prefix="tfx-perf-", suffix=".log")
        return descriptor, pathlib.Path(name)
    path = pathlib.Path(log_path)
    with errors.writing_to("log", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666), path


@contextlib.contextmanager
def _log_filter(log_path: str | os.PathLike[str] | None) -> Iterator[int]:
    """Yields the descriptor of a pipe, from which lines of C++ libraries go into a file.

    `sed` is a separate process, so that the last lines of one that crashes get through.
    """
    with open(os.devnull if log_path is None else log_path, "ab") as log:
        process = subprocess.Popen(
            ["sed", "-uE", "-e", f"/{_OF_LIBRARY}/{{w /dev/stderr", "-e", "d}"],
            stdin=subprocess.PIPE,
            stdout=_STANDARD_ERROR,
            stderr=log,
            start_new_session=True,  # ends with its input, and not by Ctrl-C
        )
    assert process.stdin is not None  # a pipe was asked for
    try:
        with process.stdin as pipe:
            yield pipe.fileno()
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_SIEVE_SECONDS)
        with contextlib.suppress(OSError):  # the file, or its folder, was removed
            if log_path is not None and not os.path.getsize(log_path):
                os.unlink(log_path)


def _is_own_standard_error() -> bool:
    try:
        return sys.stderr.fileno() == _STANDARD_ERROR
    except (AttributeError, OSError, ValueError):  # None, without a file, or closed
        return False
