"""Processes on this machine that train together."""

import contextlib
import dataclasses
import functools
import math
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO

from tfx_perf import heartbeat, workers
from tfx_perf.components.processes import child_guard
from tfx_perf.hardware import core_shares
from tfx_perf.settings.distribution import CpuBinding

_PATIENCE_SECONDS = 30.0  # after SIGTERM, as Kubernetes has it
_POLL_SECONDS = 0.1
_TOGETHER_SECONDS = 20.0  # between the ends of workers, where nothing is wrong
_OUTPUT_SECONDS = 5.0  # for the last lines: what a worker has started may keep its output open
_SERVER = "tfx_perf.training.parameter_servers.server"

# What says nothing of the training, once for each worker.
_QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONWARNINGS": "ignore::FutureWarning:google.api_core._python_version_support",
}

Say = Callable[[str], object]
Show = Callable[[int, str], object]


@dataclasses.dataclass(frozen=True)
class Task:
    """What one of the processes does.

    Attributes:
        name: for people.
        label: what its lines of output begin with.
        arguments: of its command.
        environment: variables that it has beside those of this process.
        only_serves: whether it waits for what others ask of it, and gives heartbeats.
        may_be_lost: whether the others go on without it.
        cpus: that it is bound to; None: those of this process.
    """

    name: str
    label: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    only_serves: bool = False
    may_be_lost: bool = False
    cpus: core_shares.Cpus | None = None


def tasks(
    arguments: Sequence[str],
    *,
    worker_count: int,
    server_count: int = 0,
    environment: Mapping[str, str] = types.MappingProxyType({}),
    cpu_binding: CpuBinding = "none",
) -> list[Task]:
    """Returns what processes that train together do.

    Args:
        arguments: of the command that all workers run; with servers, that of the coordinator,
            which comes first.
        worker_count: how many compute.
        server_count: how many hold the weights; 0: the workers do.
        environment: variables of all of them.
        cpu_binding: of those that compute.

    Raises:
        UserError: there are fewer CPUs than workers to be bound to them.
    """
    shares = core_shares.here().shares(worker_count) if cpu_binding == "exclusive" else ()
    cpus = {workers.name_of("worker", index): share for index, share in enumerate(shares)}
    if not server_count:
        hosts = _free_hosts(worker_count)
        team = [workers.Worker(index, worker_count) for index in range(worker_count)]
        return [
            Task(
                name := workers.name_of("worker", worker.index),
                str(worker.index),
                arguments,
                {**environment, workers.VARIABLE: workers.config_of(worker, hosts=hosts)},
                cpus=cpus.get(name),
            )
            for worker in team
        ]
    servers = workers.ParameterServers(worker_count, server_count)
    hosts = _free_hosts(1 + worker_count + server_count)
    serving = [sys.executable, "-m", _SERVER]
    return [
        Task(
            name,
            name,
            serving if workers.only_serves(config) else arguments,
            {**environment, workers.VARIABLE: config},
            only_serves=workers.only_serves(config),
            may_be_lost=name.startswith("worker"),
            cpus=cpus.get(name),
        )
        for name, config in workers.served_configs(servers, hosts=hosts).items()
    ]


class Launched:
    """Processes that run.

    Attributes:
        tasks: what they do.
        processes: of each task the last one.
        logs: of each task the file to whose end its standard error is added.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        log_folder: pathlib.Path,
        folder: pathlib.Path,
        show: Show | None,
    ) -> None:
        """Starts one process for each task.

        Args:
            tasks: see the class.
            log_folder: that is there, for a log of each.
            folder: for their heartbeats.
            show: is called, in a thread for each process, with a task's index and a line of its
                standard output; None: that goes into the log, too.
        """
        self.tasks = tasks
        self.processes: list[subprocess.Popen[str]] = []
        self.logs = [log_folder / workers.log_file(task.name) for task in tasks]
        self._readers: list[threading.Thread] = []
        self._show = show
        self._listeners = {
            index: heartbeat.Listener(folder / str(index))
            for index, task in enumerate(tasks)
            if task.only_serves
        }
        self._folder = folder
        self._killed: dict[int, str] = {}
        try:
            for index in range(len(tasks)):
                self.processes.append(self._process(index))
        except BaseException:
            self.end(lambda text: None)
            raise
        for index in range(len(tasks)):
            self._read(index)

    @property
    def codes(self) -> list[int | None]:
        """How each has ended, as `subprocess` has it; None of one that runs."""
        return [process.poll() for process in self.processes]

    @property
    def endings(self) -> dict[int, str]:
        """How those have ended that have failed, in words."""
        return {index: self.ending(index) for index, code in enumerate(self.codes) if code}

    def ending(self, index: int) -> str:
        """Returns how one has ended, in words."""
        return self._killed.get(index) or ending(self.codes[index] or 0)

    def kill_silent(self, timeout_seconds: float) -> None:
        """Kills those that give heartbeats, and have given none for some time."""
        for index, listener in self._listeners.items():
            process = self.processes[index]
            if process.poll() is None and listener.silent_seconds() > timeout_seconds:
                _kill(process)
                self._killed[index] = (
                    f"gave no heartbeat for {timeout_seconds:g} s, since it was stopped or hangs, "
                    "so that it was killed"
                )

    def restart(self, index: int) -> None:
        """Starts a task again, whose process has ended."""
        self._killed.pop(index, None)
        if index in self._listeners:
            self._listeners[index] = heartbeat.Listener(self._folder / str(index))
        self.processes[index] = self._process(index)
        self._read(index)

    def end(self, say: Say) -> None:
        """Ends all, those that do not end by themselves the hard way.

        Args:
            say: is called with what there is to say of it, a sentence.
        """
        running = {index: each for index, each in enumerate(self.processes) if each.poll() is None}
        for process in running.values():
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)  # one that is stopped would not notice
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for index, process in running.items():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _kill(process)
                name = self.tasks[index].name.capitalize()
                say(f"{name} did not end within {_PATIENCE_SECONDS:.0f} s, and was killed.")
        for reader in self._readers:
            reader.join(_OUTPUT_SECONDS)

    def _process(self, index: int) -> "subprocess.Popen[str]":
        task = self.tasks[index]
        own = {heartbeat.VARIABLE: str(self._folder / str(index))} if task.only_serves else {}
        with self.logs[index].open("ab") as log, core_shares.bound_to(task.cpus):
            return subprocess.Popen(
                task.arguments,
                env={**_QUIET, **os.environ, "PYTHONUNBUFFERED": "1", **own, **task.environment},
                stdin=subprocess.DEVNULL,
                stdout=log if self._show is None else subprocess.PIPE,
                stderr=log,
                text=True,
                errors="replace",
                start_new_session=True,
                # It does nothing that needs a lock of another thread.
                preexec_fn=functools.partial(child_guard.end_with, os.getpid()),  # noqa: PLW1509
            )

    def _read(self, index: int) -> None:
        if self._show is None:
            return
        reader = threading.Thread(
            target=_read,
            args=(self.processes[index].stdout, index, self._show),
            name=self.tasks[index].name,
            daemon=True,
        )
        reader.start()
        self._readers.append(reader)


@contextlib.contextmanager
def started(
    tasks: Sequence[Task], *, log_folder: pathlib.Path, show: Show | None = None, say: Say
) -> Iterator[Launched]:
    """Starts a process for each task, and ends them with the context.

    They end with this process, too, however that ends.

    Args:
        tasks: what they do.
        log_folder: see `Launched`.
        show: see `Launched`; None: nobody.
        say: is called with what there is to say of them, a sentence.
    """
    with tempfile.TemporaryDirectory(prefix="tfx-perf-heartbeats-") as folder:
        launched = Launched(
            tasks, log_folder=log_folder, folder=pathlib.Path(folder), show=show
        )
        try:
            yield launched
        finally:
            launched.end(say)


def first_failure(
    launched: Launched,
    *,
    restarts: int,
    heartbeat_timeout_seconds: float,
    is_over: Callable[[], bool],
    say: Say,
) -> int | None:
    """Waits for processes; returns the first one without which the others cannot go on.

    Args:
        launched: the processes.
        restarts: how often those that may be lost are started again, all together.
        heartbeat_timeout_seconds: after which those that only serve, and give no heartbeat, are
            killed.
        is_over: asked now and then; once it says so, None is returned.
        say: as for `started`.

    Returns:
        Its index; None if the training has ended well.
    """
    serving = {index for index, task in enumerate(launched.tasks) if task.may_be_lost}
    watch = _Served(serving, restarts=restarts, say=say) if serving else _Alike(say)
    while not is_over():
        launched.kill_silent(heartbeat_timeout_seconds)
        is_done, failed = watch.look(launched)
        if is_done:
            return failed
        time.sleep(_POLL_SECONDS)
    return None


class _Alike:
    """Watches workers that are alike, none of which may be lost."""

    def __init__(self, say: Say) -> None:
        self._say, self._first_end, self._is_told = say, math.inf, False

    def look(self, launched: Launched) -> tuple[bool, int | None]:
        """Returns whether they have ended, and which one has failed."""
        codes = launched.codes
        failed = [index for index, code in enumerate(codes) if code]
        if failed or all(code == 0 for code in codes):
            return True, failed[0] if failed else None
        if 0 in codes:
            self._tell([index for index, code in enumerate(codes) if code == 0])
        return False, None

    def _tell(self, ended: Sequence[int]) -> None:
        now = time.monotonic()
        self._first_end = min(self._first_end, now)
        if now > self._first_end + _TOGETHER_SECONDS and not self._is_told:
            self._is_told = True
            self._say(
                f"Worker {', '.join(map(str, ended))} has ended, and others still run. If they "
                "wait for it, end this command: all workers have to train."
            )


class _Served:
    """Watches a coordinator and those that serve it, of which some may be lost."""

    def __init__(self, may_be_lost: set[int], *, restarts: int, say: Say) -> None:
        self._may_be_lost, self._restarts, self._say = may_be_lost, restarts, say
        self._given_up: set[int] = set()

    def look(self, launched: Launched) -> tuple[bool, int | None]:
        """Returns whether they have ended, and which one has failed."""
        codes = launched.codes
        if codes[0] == 0:
            return True, None
        ended = {index for index, code in enumerate(codes) if code is not None}
        if needed := ended - self._may_be_lost:
            return True, max(needed)  # the coordinator's end may follow from a server's
        for index in sorted(ended - self._given_up):
            how = f"{launched.tasks[index].name.capitalize()} {launched.ending(index)}"
            if self._restarts:
                self._restarts -= 1
                self._say(f"{how}, and is started again.")
                launched.restart(index)
            else:
                self._given_up.add(index)
                if self._given_up != self._may_be_lost:
                    self._say(f"{how}. The others go on without it.")
        if self._given_up == self._may_be_lost:
            return True, min(self._given_up)
        return False, None


def ending(code: int) -> str:
    """Returns how a process ended, in words.

    Args:
        code: as `subprocess` has it.
    """
    if code == -signal.SIGKILL:
        return "was ended by SIGKILL, by hand or because memory ran out"
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _kill(process: "subprocess.Popen[str]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _free_hosts(count: int) -> list[str]:
    with contextlib.ExitStack() as stack:  # all at once, else two could be the same
        probes = [stack.enter_context(socket.create_server(("localhost", 0))) for _ in range(count)]
        return [f"localhost:{probe.getsockname()[1]}" for probe in probes]


def _read(output: IO[str], index: int, show: Show) -> None:
    for line in output:
        show(index, line)
