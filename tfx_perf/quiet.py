"""Keeps standard error for a program's own lines, while libraries write into a file.

TensorFlow, Beam, kfp and Google's clients say dozens of lines when they are imported, part of
them from C++ and before any setting of theirs takes effect. So the descriptor is another one.
"""

import contextlib
import importlib
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from typing import TextIO

from tfx_perf import errors, sieve

_STANDARD_OUTPUT = 1
_STANDARD_ERROR = 2
EXIT_USER_ERROR = 2
_LIBRARIES_LOGGERS = "absl", "tensorflow", "py.warnings"
EXIT_INTERRUPTED = 130  # as a shell says of SIGINT
_SIEVE_SECONDS = 1.0  # for the last lines: another process may keep standard error open


@contextlib.contextmanager
def libraries(log_path: str | os.PathLike[str] | None = None) -> Iterator[TextIO]:
    """Sends what is written to standard error, while the context lasts, into a file.

    That of processes that are started meanwhile, too. Where the file is, is said when an
    exception leaves the context; not for a `UserError`, whose message says all.

    Args:
        log_path: the file, written anew; its folder is made if need be. None: a temporary one,
            which stays only if its place is said.

    Yields:
        The standard error that was, for the program's own lines.

    Raises:
        UserError: the file cannot be written.
    """
    log, path = _opened(log_path)
    is_needed = log_path is not None
    with open(
        os.dup(_STANDARD_ERROR), "w", buffering=1, encoding="utf-8", errors="backslashreplace"
    ) as terminal:
        _replace_standard_error(log)
        os.close(log)
        try:
            yield terminal
        except errors.UserError:
            raise
        except Exception:
            is_needed = True
            terminal.write(f"Log: {path}\n")
            raise
        finally:
            _replace_standard_error(terminal.fileno())
            if not is_needed:
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def script(log_path: str | os.PathLike[str] | None = None) -> Iterator[TextIO]:
    """Does for a whole script what `libraries` does, and ends it if the user got something wrong.

    A `UserError` is then one line on standard error and exit code 2, as for `tfx-perf`.

    Args:
        log_path: as for `libraries`.

    Yields:
        The standard error that was, for the script's own lines.
    """
    try:
        with libraries(log_path) as terminal:
            yield terminal
    except errors.UserError as error:
        tell(str(error), program=os.path.basename(sys.argv[0]))
        sys.exit(EXIT_USER_ERROR)
    except KeyboardInterrupt:
        tell("interrupted.", program=os.path.basename(sys.argv[0]))
        sys.exit(EXIT_INTERRUPTED)


@contextlib.contextmanager
def sifted(log_path: str | os.PathLike[str] | None) -> Iterator[None]:
    """Sends what C++ libraries log to standard error, while the context lasts, into a file.

    All else still gets there, above all what the user's code prints, which may run inside, and
    what a library says before it ends the process. Where `sys.stderr` is another stream, as in
    pytest, or under `tfx-perf launch`, somebody takes care of libraries already, and nothing
    is done. Nor is it where no process can be started, or the file cannot be written.

    Args:
        log_path: the file, to whose end it is added; its folder is there. It stays only if there
            is something in it. None: what libraries log goes nowhere.
    """
    with contextlib.ExitStack() as until:
        if _is_own_standard_error():
            with contextlib.suppress(OSError):
                _put_sieve(log_path, until)
        yield


def _is_own_standard_error() -> bool:
    try:
        return sys.stderr.fileno() == _STANDARD_ERROR
    except (AttributeError, OSError, ValueError):  # None, of no file, closed
        return False


def _put_sieve(log_path: str | os.PathLike[str] | None, until: contextlib.ExitStack) -> None:
    with open(os.devnull if log_path is None else log_path, "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-IS", sieve.__file__],
            stdin=subprocess.PIPE,
            stdout=_STANDARD_ERROR,
            stderr=log,
            start_new_session=True,  # it ends with what it reads, and not by Ctrl-C
        )
    assert process.stdin is not None  # a pipe was asked for
    kept = os.dup(_STANDARD_ERROR)
    with process.stdin:
        _replace_standard_error(process.stdin.fileno())

    def take_away() -> None:
        _replace_standard_error(kept)
        os.close(kept)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_SIEVE_SECONDS)
        with contextlib.suppress(OSError):  # somebody has removed it, or its folder
            if log_path is not None and not os.path.getsize(log_path):
                os.unlink(log_path)

    until.callback(take_away)


def leave_standard_error_to_libraries(log_path: str) -> TextIO:
    """Has what Python code prints to standard error go to standard output from now on.

    For a process whose standard error is a log. There stays what libraries write to the
    descriptor, what the loggers of TensorFlow and absl say, Python's warnings, and the tracebacks
    of threads, for each of which a line is printed that names the log.

    Args:
        log_path: of the log, for that line.

    Returns:
        The stream of the log.
    """
    log = sys.stderr
    handler = logging.StreamHandler(log)
    handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))

    def into_log(record: logging.LogRecord) -> bool:
        handler.handle(record)
        return False

    def traceback_into_log(failed: threading.ExceptHookArgs) -> None:
        error = failed.exc_value
        if error is None or isinstance(error, SystemExit):  # as Python has it
            return
        name = failed.thread.name if failed.thread else "that has ended"
        print(f"Exception in thread {name}:", file=log)
        traceback.print_exception(error, file=log)
        said = errors.in_one_line(error)
        print(f"Thread {name} has failed: {said}. Log: {log_path}", file=sys.stderr)

    threading.excepthook = traceback_into_log
    logging.captureWarnings(True)
    with contextlib.suppress(ImportError):
        importlib.import_module("absl.logging")  # it has to make its logger itself
    for name in _LIBRARIES_LOGGERS:
        logging.getLogger(name).addFilter(into_log)
    sys.stderr = open(  # noqa: SIM115
        _STANDARD_OUTPUT,
        "w",
        buffering=1,
        encoding="utf-8",
        errors="backslashreplace",
        closefd=False,
    )
    return log


@contextlib.contextmanager
def standard_output() -> Iterator[None]:
    """Sends what is written to standard output to standard error, while the context lasts.

    That of processes that are started meanwhile, too.
    """
    sys.stdout.flush()
    kept = os.dup(_STANDARD_OUTPUT)
    os.dup2(_STANDARD_ERROR, _STANDARD_OUTPUT)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, _STANDARD_OUTPUT)
        os.close(kept)


@contextlib.contextmanager
def all_into(log_path: str | os.PathLike[str]) -> Iterator[None]:
    """Sends what this process writes to standard output and error into a file, while it lasts.

    Args:
        log_path: the file, to whose end it is added; its folder is there.
    """
    streams = _STANDARD_OUTPUT, _STANDARD_ERROR
    _flush()
    kept = [os.dup(stream) for stream in streams]
    try:
        with open(log_path, "ab", buffering=0) as log:
            for stream in streams:
                os.dup2(log.fileno(), stream)
        yield
    finally:
        _flush()
        for stream, before in zip(streams, kept, strict=True):
            os.dup2(before, stream)
            os.close(before)


def tell(error: str, *, program: str) -> None:
    """Writes what the user got wrong to standard error, as one line."""
    print(f"{program}: {' '.join(error.split())}", file=sys.stderr)


def _opened(log_path: str | os.PathLike[str] | None) -> tuple[int, pathlib.Path]:
    if log_path is None:
        descriptor, name = tempfile.mkstemp(prefix="tfx-perf-", suffix=".log")
        return descriptor, pathlib.Path(name)
    path = pathlib.Path(log_path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666), path
    except OSError as error:
        raise errors.UserError(
            "Expected a file that can be written for what libraries log. "
            f"Received: log={path} ({error.strerror})."
        ) from error


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed, or of no file
            stream.flush()


def _replace_standard_error(descriptor: int) -> None:
    sys.stderr.flush()
    os.dup2(descriptor, _STANDARD_ERROR)
