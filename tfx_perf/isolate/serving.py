"""The server, which forks a child for every order, and the child, which calls the function."""

import contextlib
import gc
import importlib
import json
import os
import pathlib
import pkgutil
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing import connection
from typing import IO, Any, NamedTuple

from tfx_perf.core import console, errors
from tfx_perf.isolate import forks, guard

_IDLE_SECONDS = 600  # after which the idle server ends; it holds some 450 MB
_LOOK_SECONDS = 5.0  # between looks for the caller, since the kernel's signal may be missed
_ORDER_BYTES = 2**20  # more than any order has
_DESCRIPTORS = 3  # sent with an order: for answers, standard output, standard error


class _Running(NamedTuple):
    """A running child: the mark of its descendants, and the pipe that gets its exit code."""

    mark: str
    answers: IO[bytes]


def program(path: Sequence[str], *arguments: str) -> list[str]:
    """Returns the command of an interpreter that calls `main` with `path` as its `sys.path`.

    With `-m` or PYTHONPATH, Python itself would import a user's module `enum` as it starts.
    """
    code = f"import sys; sys.path[:] = {list(path)!r}; from {__name__} import main; main()"
    return [sys.executable, "-c", code, *arguments]


def main() -> None:
    """Serves the process whose id is argument 1, or carries out the request file in argument 2."""
    parent, *request = sys.argv[1:]
    if request:
        sys.exit(carry_out(*request))
    orders = socket.socket(fileno=os.dup(0))
    for stream in (0, 2):
        os.dup2(1, stream)  # the null device
    serve(orders, parent=int(parent))


def serve(orders: socket.socket, *, parent: int) -> None:
    """Forks a child for every order (JSON: a request's path, or imports); answers pid and code."""
    guard.adopt_orphans()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # meant for the caller, which passes it on
    wakeup = _open_wakeup_pipe()
    guard.signal_at_parents_end(signal.SIGUSR1)
    running: dict[int, _Running] = {}
    try:
        while os.getppid() == parent:
            patience = _LOOK_SECONDS if running else _IDLE_SECONDS
            ready = connection.wait([orders.fileno(), wakeup], patience)
            if not ready and not running:
                return
            if wakeup in ready:
                os.read(wakeup, _ORDER_BYTES)
                _answer_ended(running)
            if orders.fileno() in ready:
                line, descriptors, *_ = socket.recv_fds(orders, _ORDER_BYTES, _DESCRIPTORS)
                if not line:
                    return
                order = json.loads(line)
                if isinstance(order, list):
                    _import(order, ends_with_caller=not running)
                else:
                    _obey(order, descriptors, orders=orders, running=running)
    finally:
        for pid, child in running.items():
            guard.end_all(pid, child.mark)


def _open_wakeup_pipe() -> int:
    """Returns a file descriptor that can be read from when a child or the caller has ended."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    for number in (signal.SIGCHLD, signal.SIGUSR1):
        signal.signal(number, lambda number, frame: None)  # without it, nothing is written
    signal.set_wakeup_fd(writer)
    return reader


def _answer_ended(running: dict[int, _Running]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = ended
            if pid not in running:  # a process that a child has left
                continue
            child, code = running.pop(pid), os.waitstatus_to_exitcode(status)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            if code < 0:
                guard.end_all(pid, child.mark)
            with child.answers as answers, contextlib.suppress(OSError):
                answers.write(f"{code}\n".encode())


def _obey(
    order: str, descriptors: Sequence[int], *, orders: socket.socket, running: dict[int, _Running]
) -> None:
    request = json.loads(pathlib.Path(order).read_text())
    if request["is_forked"]:
        _import([request["target"].partition(":")[0]], ends_with_caller=not running)
    answers = os.fdopen(descriptors[0], "wb", 0)
    server = os.getpid()
    with contextlib.suppress(OSError):  # no memory, too many processes: answers no pid
        pid = os.fork()
        if not pid:
            orders.close()
            for other in (answers, *(child.answers for child in running.values())):
                other.close()
            _become_child(request, path=order, streams=descriptors[1:], parent=server)
        running[pid] = _Running(request["mark"], answers)
        answers.write(f"{pid}\n".encode())
    for stream in descriptors[1:]:
        os.close(stream)


def _import(modules: Sequence[str], *, ends_with_caller: bool) -> None:
    """Imports the modules that exist; for seconds, perhaps, the server notices nothing else."""
    if ends_with_caller:
        guard.signal_at_parents_end(signal.SIGKILL)
    known_count = len(sys.modules)
    for module in modules:
        with contextlib.suppress(Exception):  # the child raises it again, and reports it
            importlib.import_module(module)
    if not gc.get_freeze_count() or known_count < len(sys.modules):
        # No collection in a fork copies their memory. Half a second, before a caller waits.
        gc.collect()
        gc.freeze()
    guard.signal_at_parents_end(signal.SIGUSR1)


def _become_child(
    request: Mapping[str, Any], *, path: str, streams: Sequence[int], parent: int
) -> None:
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for signal_number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM):
            signal.signal(signal_number, signal.SIG_DFL)
        os.setsid()
        guard.end_with(parent)
        for number, stream in enumerate(streams, start=1):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(request["cwd"])
        if request["cpus"] is not None:
            os.sched_setaffinity(0, request["cpus"])
        if not request["is_forked"]:
            started = program(request["path"], "", path)
            os.execve(sys.executable, started, request["environment"])
        forks.forget_streams()
        if request["log"]:  # otherwise it logs as its parent does
            forks.forget_logging()
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.path[:] = request["path"]
        importlib.invalidate_caches()
        if request["cpus"] is not None:
            # TensorFlow counts the CPUs when it first runs; NumPy's OpenBLAS and OpenMP did so
            # when they were loaded.
            import threadpoolctl

            threadpoolctl.threadpool_limits(len(request["cpus"]))
        if "numpy" in sys.modules:  # otherwise all children would draw the same numbers
            sys.modules["numpy"].random.seed()
        # Imports TensorFlow, which the server and a fresh interpreter may not need.
        from tfx_perf.tf_internals import autograph

        with autograph.removed_afterwards():
            code = carry_out(path)
            if not request["log"]:
                forks.end_as_an_interpreter()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    finally:
        console.flush()
        os._exit(code)


def carry_out(path: str) -> int:
    """Calls the function of the request at `path`; returns the exit code for this process."""
    request, code = json.loads(pathlib.Path(path).read_text()), 1
    if request["log"]:  # if memory runs out, this process is killed, not its parent
        with contextlib.suppress(OSError):
            pathlib.Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        function = pkgutil.resolve_name(request["target"])
        forks.note_imports()
        outcome, code = {"result": function(**request["arguments"])}, 0
    except errors.UserError as error:
        outcome = {"user_error": str(error)}
    except Exception as error:  # reported to the parent, whatever it is
        traceback.print_exc()
        outcome = {"error": errors.in_one_line(error), "may_pass": _may_pass(error)}
    # The response is complete or missing, even if the process is killed while it writes.
    draft = pathlib.Path(f"{request['response']}.draft")
    draft.write_text(json.dumps(outcome))
    draft.rename(request["response"])
    return code


def _may_pass(error: Exception) -> bool:
    """Returns whether the machine or another process, rather than the code, caused an error."""
    is_of_machine = isinstance(error, OSError) or errors.is_short_of_memory(error)
    return is_of_machine or errors.is_of_connection(error) or getattr(error, "may_pass", False)
