"""ChildServer: forks children from a process that has done their imports.

TensorFlow and TFX take 7 seconds to import, most of what a short job in a child costs. A fork of
the parent would inherit TensorFlow's running threads in a broken state. The server has none:
it imports, and never runs anything. It is a fork itself where the parent has done no more by then
(`forking`), else an interpreter. (`multiprocessing`'s server of that kind would run the user's
main script once more in every child.)
"""

import contextlib
import fcntl
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any

from tfx_perf.components.processes import child_guard, child_side, forking
from tfx_perf.hardware import core_shares, host
from tfx_perf.tf_internals import generated_code
from tfx_perf.training.measuring import collector

_IDLE_SECONDS = 600  # then the server ends; it holds some 450 MB
_IMPORTS = "imports"
_PATH = "PYTHONPATH"  # may differ from child to child
_ORDER_BYTES = 2**20  # no order is as long
_DESCRIPTORS = 3  # that come with an order: for the answers, standard output, standard error


class ServedChild:
    """A child of the server, with the methods of `subprocess.Popen` that its parent needs."""

    def __init__(self, pid: int, answers: IO[bytes]) -> None:
        """Is made by `ChildServer.start`.

        Args:
            pid: of the child's guard.
            answers: where the server writes the exit code.
        """
        self._pid, self._answers = pid, answers
        self._code: int | None = None
        self._lock = threading.Lock()

    def __del__(self) -> None:
        """Closes what the answer came by: not before, since several threads may wait for it."""
        self._answers.close()

    def poll(self) -> int | None:
        """Returns the exit code, None while the child runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit code, negative if a signal ended the child.

        Args:
            timeout: seconds to wait for its end; None: for ever.

        Raises:
            TimeoutExpired: it runs on.
        """
        if self._code is None and not select.select([self._answers], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(str(self._pid), timeout or 0.0)
        with self._lock:
            if self._code is None:
                answer = self._answers.readline()
                # Without one the server has died, and the child with it.
                self._code = int(answer) if answer else -signal.SIGKILL
        return self._code

    def send_signal(self, number: int) -> None:
        """Sends a signal to the child's guard, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)


class ChildServer:
    """The parent's side: one server at most, started when it is first needed."""

    def __init__(self) -> None:
        """Starts nothing yet."""
        self._process: subprocess.Popen[bytes] | forking.Forked | None = None
        self._orders: socket.socket | None = None
        self._environment: dict[str, str] = {}
        self._children: list[ServedChild] = []
        self._lock = threading.Lock()

    def start(
        self,
        order: Mapping[str, Any],
        *,
        environment: Mapping[str, str],
        streams: tuple[int, int],
    ) -> ServedChild | None:
        """Starts a child.

        Args:
            order: for `_serve`: `target`, `request`, `response`, `environment`,
                `stands_for_its_parent`, `cpus`.
            environment: of the server. If it is another than the last time, so is the server.
            streams: file descriptors for the child's standard output and standard error.

        Returns:
            None if no child could be started, and a fresh interpreter must do.
        """
        # Drivers of accelerators do not survive a fork, and no import is known never to open them.
        if host.may_have_accelerators():
            return None
        path = environment[_PATH].split(os.pathsep)
        order = {**order, "path": path, "cwd": os.getcwd()}
        reader, writer = os.pipe()
        answers = os.fdopen(reader, "rb", 0)  # `select` does not see what a buffer holds
        with self._lock:
            with os.fdopen(writer, "wb", 0):
                is_sent = self._send(order, dict(environment), descriptors=(writer, *streams))
            answer = answers.readline() if is_sent else b""
            if not answer:  # the server is gone
                answers.close()
                return None
            child = ServedChild(int(answer), answers)
            self._children = [*self._running(), child]
            return child

    def import_early(self, modules: Sequence[str], *, environment: Mapping[str, str]) -> None:
        """Starts the server, if it may be used, and has it import modules; waits for nothing.

        Args:
            modules: what children will need.
            environment: see `start`.
        """
        if not host.may_have_accelerators():
            with self._lock:
                self._send({_IMPORTS: list(modules)}, dict(environment))

    def release(self) -> None:
        """Ends the server, unless it has children, as of another thread; the next child starts one.

        Where it has, it ends when nothing has been asked of it for a while.
        """
        with self._lock:
            if not self._running():
                self._end()

    def _send(
        self,
        order: Mapping[str, Any],
        environment: dict[str, str],
        *,
        descriptors: Sequence[int] = (),
    ) -> bool:
        """Sends an order to a server with that environment; returns whether there is one."""
        path = environment.pop(_PATH)
        process = self._process
        if process is None or process.poll() is not None or environment != self._environment:
            if self._running():
                return False  # they would end with the server that they are of
            self._end()
            self._begin({**environment, _PATH: path})
            self._environment = environment
        assert self._orders is not None  # `_begin` made it
        try:
            socket.send_fds(self._orders, [json.dumps(order).encode()], descriptors)
        except OSError:  # the server is gone
            self._end()
            return False
        return True

    def _begin(self, environment: Mapping[str, str]) -> None:
        self._orders, theirs = map(
            _above_standard_streams, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        )
        ours, parent = self._orders, os.getpid()

        def serve() -> None:
            ours.close()
            os.environ.update(environment)
            _serve(theirs, parent=parent)

        with theirs:
            if forking.may_fork():
                self._process = forking.Forked(serve)
                return
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(parent)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )

    def _running(self) -> list[ServedChild]:
        return [child for child in self._children if child.poll() is None]

    def _end(self) -> None:
        if self._process is not None and self._orders is not None:
            self._process.kill()
            self._process.wait()
            self._orders.close()
            self._process = self._orders = None


def _above_standard_streams(end: socket.socket) -> socket.socket:
    """Returns a socket with another file descriptor, if those of closed streams are in use."""
    with end:
        return socket.socket(fileno=fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, 3))


def _serve(orders: socket.socket, *, parent: int) -> None:
    """Forks a child for every order that comes; answers its pid and its exit code.

    An order that has nothing but imports has no answer.
    """
    child_guard.end_with(parent)
    answers: dict[int, IO[bytes]] = {}  # of the children that run, by their pids
    ended = _told_of_children()
    while True:
        patience = None if answers else _IDLE_SECONDS
        ready = select.select([orders.fileno(), ended], [], [], patience)[0]
        if not ready:
            return
        if ended in ready:
            os.read(ended, _ORDER_BYTES)
            _answer_ended(answers)
        if orders.fileno() in ready:
            line, descriptors, *_ = socket.recv_fds(orders, _ORDER_BYTES, _DESCRIPTORS)
            if not line:
                return
            _obey(json.loads(line), descriptors, orders=orders, answers=answers)


def _told_of_children() -> int:
    """Returns a file descriptor that can be read from when a child has ended."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)  # else the descriptor is not told
    signal.set_wakeup_fd(writer)
    return reader


def _answer_ended(answers: dict[int, IO[bytes]]) -> None:
    for pid in [*answers]:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with answers.pop(pid) as answer, contextlib.suppress(OSError):
                answer.write(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _obey(
    order: Mapping[str, Any],
    descriptors: Sequence[int],
    *,
    orders: socket.socket,
    answers: dict[int, IO[bytes]],
) -> None:
    modules = order.get(_IMPORTS) or [order["target"].partition(":")[0]]
    for module in modules:
        with contextlib.suppress(Exception):  # the child meets it again, and reports it
            importlib.import_module(module)
    if _IMPORTS in order:
        return
    gc.collect()
    collector.freeze_for_forks()
    answer = os.fdopen(descriptors[0], "wb", 0)
    server = os.getpid()
    pid = os.fork()
    if not pid:
        orders.close()
        for other in (answer, *answers.values()):
            other.close()
        _become_child(order, streams=descriptors[1:], parent=server)
    for stream in descriptors[1:]:
        os.close(stream)
    answers[pid] = answer
    with contextlib.suppress(OSError):
        answer.write(f"{pid}\n".encode())


def _become_child(order: Mapping[str, Any], *, streams: Sequence[int], parent: int) -> None:
    """Carries the order out and ends this process."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        child_guard.split(parent)
        for number, stream in enumerate(streams, start=1):
            os.dup2(stream, number)
            os.close(stream)
        forking.forget_streams()
        if not order["stands_for_its_parent"]:  # else it logs as that does
            forking.forget_logging()
        os.chdir(order["cwd"])
        os.environ.update(order["environment"])
        os.environ[_PATH] = os.pathsep.join(order["path"])
        if order["cpus"] is not None:
            core_shares.bind_fork(frozenset(order["cpus"]))
        sys.path[:] = order["path"]
        importlib.invalidate_caches()
        if "numpy" in sys.modules:  # else all children would draw the same numbers
            sys.modules["numpy"].random.seed()
        with generated_code.removed_afterwards():
            code = child_side.carry_out(order["request"], order["response"])
            if order["stands_for_its_parent"]:
                forking.end_as_an_interpreter()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    standard_input = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    os.dup2(sys.stdout.fileno(), sys.stdin.fileno())  # both are the null device
    _serve(standard_input, parent=int(sys.argv[1]))
