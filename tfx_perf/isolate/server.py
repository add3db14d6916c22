"""Server: the caller's side of the process that all children are started from.

TensorFlow and TFX take 7 seconds to import, most of what a short job in a child costs. The server
imports them and never runs anything, so that it has no running threads that break a fork. It is a
fork of the caller if that has done no more by then (`forks`), otherwise a fresh interpreter.
(`multiprocessing`'s server would run the user's main script again in every child.) It also ends
the processes that a child has left behind.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import connection
from typing import IO, Any

from tfx_perf.core import console, errors, formatting
from tfx_perf.isolate import forks, guard, serving
from tfx_perf.isolate.termination import Termination

_STANDARD_ERROR = 2
_POLL_SECONDS = 0.2


class Child:
    """A process that `Server.start` has started."""

    def __init__(
        self, pid: int, answers: IO[bytes], request: Mapping[str, Any], *, wake: Callable[[], None]
    ) -> None:
        """Wraps a child whose exit code arrives in `answers`; `wake` continues a stopped server."""
        self._pid, self._answers, self._request, self._wake = pid, answers, request, wake
        self._code: int | None = None
        self._lock = threading.Lock()

    def __del__(self) -> None:
        """Closes the pipe of the answer; not earlier, since several threads may wait for it."""
        self._answers.close()

    def poll(self) -> int | None:
        """Returns the exit code, None while the child runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the exit code, negative after a signal; TimeoutExpired if it runs longer."""
        if self._code is None and not connection.wait([self._answers.fileno()], timeout):
            raise subprocess.TimeoutExpired(str(self._pid), timeout or 0.0)
        with self._lock:
            if self._code is None:
                answer = self._answers.readline()
                # Without an answer the server has died, and the child with it.
                self._code = int(answer) if answer else -signal.SIGKILL
        return self._code

    def terminate(self) -> None:
        """Sends the child SIGTERM, and continues it if it is stopped, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGTERM)
                os.kill(self._pid, signal.SIGCONT)

    def end(self) -> None:
        """Kills the child and its descendants."""
        if self.poll() is None:
            guard.end_all(self._pid, self._request["mark"])
            self._wake()
            self.wait()

    def result(self, *, timeout_seconds: float | None) -> Any:
        """Waits for the result, a JSON value; raises what `isolate.run` raises."""
        target, log = self._request["target"], self._request["log"]
        try:
            code = self.wait(timeout_seconds) if log else self._wait_as_its_shell()
        except subprocess.TimeoutExpired as error:
            seconds = formatting.format_seconds(error.timeout)
            raise errors.TimedOutError(target, f"did not end within {seconds}", log=log) from error
        response = pathlib.Path(self._request["response"])
        if not response.exists():
            is_told = code == -signal.SIGTERM
            kind = errors.TerminatedError if is_told else errors.ProcessEndedError
            raise kind(target, guard.describe_exit(code), log=log)
        outcome = json.loads(response.read_text())
        if "user_error" in outcome:
            raise errors.UserError(outcome["user_error"])
        if "error" in outcome:
            raised, may_pass = f"raised {outcome['error']}", outcome["may_pass"]
            raise errors.ChildError(target, raised, log=log, may_pass=may_pass)
        return outcome["result"]

    def _wait_as_its_shell(self) -> int:
        """Waits for a child that acts for this process; a second Ctrl-C ends the wait at once."""
        try:
            with Termination() as termination:
                is_told = False
                while True:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        return self.wait(_POLL_SECONDS)
                    if termination.requested and not is_told:
                        self.terminate()
                        is_told = True
        except KeyboardInterrupt:
            console.set_status("stopping the running process; press Ctrl-C again to quit at once")
            self.terminate()
            self.wait()
            raise


class Server:
    """At most one server process, started when it is first needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | forks.Forked | None = None
        self._orders: socket.socket | None = None
        self._environment: dict[str, str] = {}
        self._children: list[Child] = []
        self._lock = threading.Lock()

    def start(
        self,
        request: Mapping[str, Any],
        *,
        environment: Mapping[str, str],
        path: pathlib.Path,
        streams: tuple[int, int],
    ) -> Child:
        """Starts a child for a request, written to `path`; ChildError if that is impossible.

        With another environment the server is replaced, or execs an interpreter if it has children.
        """
        with self._lock:
            for _ in range(2):  # the server may have ended since it was last asked
                is_alike = self._prepare(
                    environment, needs_alike=request["is_forked"], streams=streams
                )
                asked = {**request, "is_forked": request["is_forked"] and is_alike}
                path.write_text(json.dumps(asked))
                reader, writer = os.pipe()
                answers = os.fdopen(reader, "rb", 0)  # `select` does not see what a buffer holds
                with os.fdopen(writer, "wb", 0):
                    is_sent = self._send(str(path), descriptors=(writer, *streams))
                answer = answers.readline() if is_sent else b""
                if answer:
                    child = Child(int(answer), answers, request, wake=self._wake)
                    self._children = [*self._running(), child]
                    return child
                answers.close()
                if self._running():
                    break  # the server is there, and cannot
                self._end()
        raise errors.ChildError(request["target"], "could not be started", log=request["log"])

    def import_early(self, modules: Sequence[str], *, environment: Mapping[str, str]) -> None:
        """Starts the server to import modules, without waiting; see `isolate.import_early`."""
        with self._lock:
            if not modules and not forks.may_fork():
                return
            if self._prepare(environment, needs_alike=True) and modules:
                self._send(list(modules))

    def release(self) -> None:
        """Ends the server; while it has children, leaves it to end itself when it is idle."""
        with self._lock:
            if not self._running():
                self._end()

    def _prepare(
        self, environment: Mapping[str, str], *, needs_alike: bool, streams: Sequence[int] = ()
    ) -> bool:
        """Starts a server unless there is one; returns whether it has that environment."""
        if self._process is not None and self._process.poll() is None:
            is_alike = environment == self._environment
            # Children would end with the server that is replaced.
            if is_alike or not needs_alike or self._running():
                return is_alike
        self._end()
        self._begin(environment, streams=streams)
        self._environment = dict(environment)
        return True

    def _send(self, order: str | list[Any], *, descriptors: Sequence[int] = ()) -> bool:
        assert self._orders is not None  # `_prepare` sets it
        try:
            socket.send_fds(self._orders, [json.dumps(order).encode()], descriptors)
        except OSError:  # the server is gone
            self._end()
            return False
        return True

    def _begin(self, environment: Mapping[str, str], *, streams: Sequence[int]) -> None:
        self._orders, theirs = map(
            _above_standard_streams, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        )
        ours, parent = self._orders, os.getpid()

        def serve() -> None:
            ours.close()
            for stream in {*streams}:  # the reader waits until all copies are closed
                if stream > _STANDARD_ERROR:
                    os.close(stream)
            os.environ.update(environment)
            serving.serve(theirs, parent=parent)

        with theirs:
            if forks.may_fork():
                self._process = forks.Forked(serve)
                return
            self._process = subprocess.Popen(
                serving.program([os.path.abspath(folder) for folder in sys.path], str(parent)),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,  # its standard error is seen until it serves
                env=environment,
                start_new_session=True,
            )

    def _running(self) -> list[Child]:
        return [child for child in self._children if child.poll() is None]

    def _wake(self) -> None:
        """Continues a stopped server, which otherwise does not report the ends of its children."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def _end(self) -> None:
        if self._process is not None and self._orders is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._orders.close()
            self._process = self._orders = None


def _above_standard_streams(end: socket.socket) -> socket.socket:
    """Returns the socket with a descriptor above those of standard streams, which may be closed."""
    with end:
        return socket.socket(fileno=fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, 3))
