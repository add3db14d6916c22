"""Processes on this machine that train together."""

import contextlib
import dataclasses
import math
import signal
import socket
import subprocess
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from tfx_perf import workers
from tfx_perf.hardware import core_shares
from tfx_perf.settings.distribution import CpuBinding

_PATIENCE_SECONDS = 30.0  # after SIGTERM, as Kubernetes has it
_POLL_SECONDS = 0.1
_TOGETHER_SECONDS = 20.0  # between the ends of workers, where nothing is wrong

Say = Callable[[str], object]


@dataclasses.dataclass(frozen=True)
class Task:
    """What one of the processes does.

    Attributes:
        name: for people.
        label: what its lines of output begin with.
        environment: variables that it has beside those of this process.
        may_be_lost: whether the others go on without it.
        cpus: that it is bound to; None: those of this process.
    """

    name: str
    label: str
    environment: Mapping[str, str]
    may_be_lost: bool = False
    cpus: core_shares.Cpus | None = None

    @property
    def only_serves(self) -> bool:
        """Whether it serves another task that trains, and does nothing else."""
        return workers.only_serves(self.environment[workers.VARIABLE])


def tasks(
    *,
    worker_count: int,
    server_count: int = 0,
    environment: Mapping[str, str] = types.MappingProxyType({}),
    cpu_binding: CpuBinding = "none",
) -> list[Task]:
    """Returns what processes that train together do.

    Args:
        worker_count: how many compute.
        server_count: how many hold the weights, for a coordinator, which comes first; 0: the
            workers do.
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
                {**environment, workers.VARIABLE: workers.config_of(worker, hosts=hosts)},
                cpus=cpus.get(name),
            )
            for worker in team
        ]
    servers = workers.ParameterServers(worker_count, server_count)
    hosts = _free_hosts(1 + worker_count + server_count)
    return [
        Task(
            name,
            name,
            {**environment, workers.VARIABLE: config},
            may_be_lost=name.startswith("worker"),
            cpus=cpus.get(name),
        )
        for name, config in workers.served_configs(servers, hosts=hosts).items()
    ]


class Process(Protocol):
    """What is asked of a process, as `subprocess` has it."""

    def poll(self) -> int | None:
        """Returns the exit code, negative if a signal ended it; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end; returns the exit code."""

    def send_signal(self, number: int) -> None:
        """Sends it a signal, unless it has ended."""


Start = Callable[[Task], contextlib.AbstractContextManager[Process]]
"""Starts the process of a task; with the context ends what is left of it."""


class Launched:
    """Processes that run.

    Attributes:
        tasks: what they do.
    """

    def __init__(self, tasks: Sequence[Task], *, start: Start, until: contextlib.ExitStack) -> None:
        """Starts one process for each task.

        Args:
            tasks: see the class.
            start: what starts a process.
            until: what the processes are left with.
        """
        self.tasks = tasks
        self._start, self._until = start, until
        self._processes = [until.enter_context(start(task)) for task in tasks]

    @property
    def codes(self) -> list[int | None]:
        """How the last process of each task has ended; None of one that runs."""
        return [process.poll() for process in self._processes]

    def restart(self, index: int) -> None:
        """Starts a task again, whose process has ended."""
        self._processes[index] = self._until.enter_context(self._start(self.tasks[index]))

    def end(self, say: Say) -> None:
        """Has all end by themselves, and tells of those that do not.

        Args:
            say: is called with what there is to say of them, a sentence.
        """
        running = {index: each for index, each in enumerate(self._processes) if each.poll() is None}
        for process in running.values():
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for index, process in running.items():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                name = self.tasks[index].name.capitalize()
                say(f"{name} did not end within {_PATIENCE_SECONDS:.0f} s, and is killed.")


@contextlib.contextmanager
def started(tasks: Sequence[Task], *, start: Start, say: Say) -> Iterator[Launched]:
    """Starts a process for each task, and ends them with the context.

    Args:
        tasks: what they do.
        start: what starts a process.
        say: is called with what there is to say of them, a sentence.
    """
    with contextlib.ExitStack() as until:
        launched = Launched(tasks, start=start, until=until)
        try:
            yield launched
        finally:
            launched.end(say)


def first_failure(
    launched: Launched, *, restarts: int, is_over: Callable[[], bool], say: Say
) -> int | None:
    """Waits for processes; returns the first one without which the others cannot go on.

    Args:
        launched: the processes.
        restarts: how often those that may be lost are started again, all together.
        is_over: asked now and then; once it says so, None is returned.
        say: as for `started`.

    Returns:
        Its index; None if the training has ended well.
    """
    serving = {index for index, task in enumerate(launched.tasks) if task.may_be_lost}
    watch = _Served(serving, restarts=restarts, say=say) if serving else _Alike(say)
    while not is_over():
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
            how = f"{launched.tasks[index].name.capitalize()} {ending(codes[index] or 0)}"
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


def _free_hosts(count: int) -> list[str]:
    with contextlib.ExitStack() as stack:  # all at once, else two could be the same
        probes = [stack.enter_context(socket.create_server(("localhost", 0))) for _ in range(count)]
        return [f"localhost:{probe.getsockname()[1]}" for probe in probes]
