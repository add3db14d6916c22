"""Runs functions in child processes, which may crash, hang, be killed or be measured.

A child is a fresh interpreter, or a fork of a process that has only imported modules: a fork of the
caller would inherit TensorFlow's threads in a broken state. A child has the caller's import path
and Keras version, and its own session. However the caller ends, the child and all processes that
it has started end with it.

Example:
    >>> isolate.run("json:dumps", {"obj": [1]}, timeout_seconds=60, log_path="log")
    '[1]'
"""

import contextlib
import os
import pathlib
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

from tfx_perf.hardware import host
from tfx_perf.isolate import guard, server
from tfx_perf.isolate.server import Child

__all__ = ["Child", "import_early", "release_server", "run", "started"]

_SERVER = server.Server()
_OUTPUT_SECONDS = 5.0  # for the last lines: processes of a child may keep its output open


def run(
    target: str,
    arguments: Mapping[str, Any],
    *,
    timeout_seconds: float | None,
    log_path: str | os.PathLike[str] | None,
    environment: Mapping[str, str] | None = None,
    is_forked: bool = False,
) -> Any:
    """Calls `package.module:function` in a child process and returns its result, all as JSON.

    The child's output is appended to `log_path`, in an existing folder. With None it goes where the
    caller's output goes, and the child acts for its caller: SIGTERM and Ctrl-C reach it as SIGTERM,
    and take effect here after it has ended. After `timeout_seconds` (None: never) the child and all
    processes that it has started are killed.

    `is_forked` forks the child, where that is safe, from a server that has imported the target. The
    import must have no side effects, and TensorFlow must read `environment` only when it runs.

    Raises:
        UserError: the function raised one; the message is the same.
        ChildError: it raised something else; one line with the cause and the log's path, as below.
        TimedOutError: it took longer than `timeout_seconds`.
        ProcessEndedError: the child was killed, crashed or ended itself; a TerminatedError after
            SIGTERM.
    """
    with started(
        target, arguments, log_path=log_path, environment=environment, is_forked=is_forked
    ) as child:
        return child.result(timeout_seconds=timeout_seconds)


@contextlib.contextmanager
def started(
    target: str,
    arguments: Mapping[str, Any],
    *,
    log_path: str | os.PathLike[str] | None,
    environment: Mapping[str, str] | None = None,
    is_forked: bool = False,
    cpus: frozenset[int] | None = None,
    show: Callable[[str], object] | None = None,
) -> Iterator[Child]:
    """Starts a child as `run` does; it and all processes it has started end with the context.

    The child is bound to `cpus` (None: those of this process). A thread calls `show` with each line
    of its standard output, which is then not in the log.
    """
    with contextlib.ExitStack() as until:
        folder = pathlib.Path(
            until.enter_context(tempfile.TemporaryDirectory(prefix="tfx-perf-child-"))
        )
        inherited, mark = _environment(), folder.name
        request = {
            "target": target,
            "arguments": dict(arguments),
            "response": str(folder / "response"),
            "log": "" if log_path is None else str(log_path),
            "mark": mark,
            # Accelerator drivers do not survive a fork, and any import may open them.
            "is_forked": is_forked and not host.may_have_accelerators(),
            "environment": {**inherited, **(environment or {}), guard.MARK: guard.with_mark(mark)},
            "path": [os.path.abspath(folder) for folder in sys.path],
            "cwd": os.getcwd(),
            "cpus": None if cpus is None else sorted(cpus),
        }
        if log_path is None:
            streams = _standard_streams()
        else:
            log = until.enter_context(open(log_path, "ab"))
            streams = log.fileno(), log.fileno()
        with contextlib.ExitStack() as until_it_runs:
            if show is not None:
                writer = until_it_runs.enter_context(until.enter_context(_shown(show)))
                streams = writer.fileno(), streams[1]
            child = _SERVER.start(
                request, environment=inherited, path=folder / "request", streams=streams
            )
        until.callback(child.end)  # also on Ctrl-C, which does not reach another session
        yield child


def import_early(modules: Sequence[str] = ()) -> None:
    """Has the server of `is_forked` import modules in the background; not with accelerators.

    Without modules a server is started only if it can be a fork of this process. Such a fork has
    what this process has imported so far, and costs nothing if no child follows.
    """
    if not host.may_have_accelerators():
        _SERVER.import_early(modules, environment=_environment())


def release_server() -> None:
    """Frees the memory of the server that children are forked from, if there is one."""
    _SERVER.release()


def _standard_streams() -> tuple[int, int]:
    """Returns output and error; opens the null device for a closed one."""
    for stream in (1, 2):
        try:
            os.fstat(stream)
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != stream:  # the lowest free number may be the stream's own
                os.dup2(nowhere, stream)
                os.close(nowhere)
    return 1, 2


@contextlib.contextmanager
def _shown(show: Callable[[str], object]) -> Iterator[IO[bytes]]:
    """Yields a pipe for a child's output, and shows each line until all writers have closed it."""
    reader, writer = os.pipe()

    def read() -> None:
        with open(reader, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                show(line)

    thread = threading.Thread(target=read, daemon=True)
    with os.fdopen(writer, "wb", 0) as output:
        thread.start()
        yield output
    thread.join(_OUTPUT_SECONDS)


def _environment() -> dict[str, str]:
    environment = dict(os.environ)
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None:
        # `tf.keras` is chosen when it is first used, and tensorflow_transform may set the variable
        # after that; a child that reads it could get the other Keras version.
        legacy = tensorflow.keras.Model.__module__.startswith("tf_keras")
        environment["TF_USE_LEGACY_KERAS"] = "1" if legacy else "0"
    return environment
