"""ChildServer: forks children from a process that has done their imports.

TensorFlow and TFX take 7 seconds to import, most of what a short job in a child costs. A fork of
the parent would inherit TensorFlow's running threads in a broken state. The server has none:
it imports, and never runs anything. (`multiprocessing`'s server of that kind would run the
user's main script once more in every child.)
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from tfx_perf.components.processes import child_guard, child_side
from tfx_perf.hardware import host

_IDLE_SECONDS = 600  # then the server ends; it holds some 450 MB
_IMPORTS = "imports"
_PATH = "PYTHONPATH"  # may differ from child to child


class ChildServer:
    """The parent's side: one server at most, started when it is first needed."""

    def __init__(self) -> None:
        """Starts nothing yet."""
        self._process: subprocess.Popen[bytes] | None = None
        self._environment: dict[str, str] = {}
        self._busy = threading.Lock()

    def run(
        self,
        order: Mapping[str, Any],
        *,
        environment: Mapping[str, str],
        timeout_seconds: float | None,
    ) -> int | None:
        """Runs a child to its end and returns its exit code, negative if a signal ended it.

        Args:
            order: for `_serve`: `target`, `request`, `response`, `log`, `environment`.
            environment: of the server. If it is another than the last time, so is the server.
            timeout_seconds: of the child; None: it may take any time.

        Returns:
            None if no child could be started, and a fresh interpreter must do.

        Raises:
            TimeoutExpired: the child and all it started were killed.
        """
        # Drivers of accelerators do not survive a fork, and no import is known never to open them.
        if host.may_have_accelerators() or not self._busy.acquire(blocking=False):
            return None
        try:
            started = self._started(dict(environment))
            path = environment[_PATH].split(os.pathsep)
            line = json.dumps({**order, "path": path, "cwd": os.getcwd()})
            started.stdin.write(f"{line}\n".encode())
            answer = started.stdout.readline()
            return self._awaited(started, int(answer), timeout_seconds) if answer else None
        except OSError:  # the server is gone
            return None
        finally:
            self._busy.release()

    def import_early(self, modules: Sequence[str], *, environment: Mapping[str, str]) -> None:
        """Starts the server, if it may be used, and has it import modules; waits for nothing.

        Args:
            modules: what children will need.
            environment: see `run`.
        """
        if host.may_have_accelerators() or not self._busy.acquire(blocking=False):
            return
        try:
            started = self._started(dict(environment))
            started.stdin.write(f"{json.dumps({_IMPORTS: list(modules)})}\n".encode())
        except OSError:  # the next child starts another one, or does without
            self._end()
        finally:
            self._busy.release()

    def release(self) -> None:
        """Ends the server; the next child starts another one."""
        with self._busy:
            self._end()

    def _started(self, environment: dict[str, str]) -> "subprocess.Popen[bytes]":
        path = environment.pop(_PATH)
        process = self._process
        if process is None or process.poll() is not None or environment != self._environment:
            self._end()
            self._environment = environment
            self._process = process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,  # as on the other side
                env={**environment, _PATH: path},
                start_new_session=True,
            )
        return process

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process.stdin.close()
            self._process.stdout.close()
            self._process = None

    def _awaited(
        self, started: "subprocess.Popen[bytes]", pid: int, timeout_seconds: float | None
    ) -> int | None:
        in_time = False
        try:
            in_time = bool(select.select([started.stdout], [], [], timeout_seconds)[0])
            if not in_time:
                raise subprocess.TimeoutExpired(str(pid), timeout_seconds)
            answer = started.stdout.readline()
            return int(answer) if answer else -signal.SIGKILL  # the server died, and it with it
        finally:  # also on Ctrl-C, which does not reach another process group
            if not in_time:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, child_guard.END)
                started.stdout.readline()


def _serve(parent: int) -> None:
    """Forks a child for every order on standard input; answers its pid and its exit code.

    An order that has nothing but imports has no answer.
    """
    child_guard.end_with(parent)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what imports print is no answer
    orders = os.fdopen(sys.stdin.fileno(), "rb", 0)  # `select` does not see what a buffer holds
    while select.select([orders], [], [], _IDLE_SECONDS)[0]:
        line = orders.readline()
        if not line:
            return
        order = json.loads(line)
        modules = order.get(_IMPORTS) or [order["target"].partition(":")[0]]
        for module in modules:
            with contextlib.suppress(Exception):  # the child meets it again, and reports it
                importlib.import_module(module)
        if _IMPORTS in order:
            continue
        gc.collect()
        gc.freeze()  # a collection in the child would copy what it only looks at
        server = os.getpid()
        pid = os.fork()
        if not pid:
            answers.close()
            _become_child(order, parent=server)
        answers.write(f"{pid}\n")
        answers.flush()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        answers.write(f"{code}\n")
        answers.flush()


def _become_child(order: Mapping[str, Any], *, parent: int) -> None:
    """Carries the order out and ends this process."""
    code = 1
    try:
        os.setsid()
        child_guard.split(parent)
        log = os.open(order["log"], os.O_WRONLY | os.O_APPEND)
        for descriptor, stream in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
            os.dup2(descriptor, stream)
        os.chdir(order["cwd"])
        os.environ.update(order["environment"])
        os.environ[_PATH] = os.pathsep.join(order["path"])
        sys.path[:] = order["path"]
        importlib.invalidate_caches()
        if "numpy" in sys.modules:  # else all children would draw the same numbers
            sys.modules["numpy"].random.seed()
        child_side.carry_out(order["request"], order["response"])
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
