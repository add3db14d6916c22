"""Starts, watches, restarts and ends processes on this machine that train together."""

import contextlib
import dataclasses
import math
import os
import pathlib
import subprocess
import time
import types
from collections.abc import Callable, Mapping, Sequence

from tfx_perf import isolate
from tfx_perf.core import errors, workers
from tfx_perf.distribute import failure
from tfx_perf.distribute.parameter_server import heartbeat
from tfx_perf.isolate import guard

_PATIENCE_SECONDS = 30.0  # after SIGTERM, as in Kubernetes
_POLL_SECONDS = 0.1
_TOGETHER_SECONDS = 20.0  # at most, between the ends of workers if nothing is wrong

_CPUS = pathlib.Path("/sys/devices/system/cpu")

Cpus = frozenset[int]
Say = Callable[[str], object]


@dataclasses.dataclass(frozen=True)
class Task:
    """The task of one process.

    `label` begins its lines of output; `environment` and `cpus` (None: all of this process) are its
    own. A process that only serves touches the file `heartbeats`. The others continue without a
    process that `may_be_lost`.
    """

    name: str
    label: str
    environment: Mapping[str, str]
    heartbeats: pathlib.Path | None = None
    may_be_lost: bool = False
    cpus: Cpus | None = None

    @property
    def title(self) -> str:
        """Its name at the beginning of a sentence."""
        return self.name.capitalize()


Start = Callable[[Task], contextlib.AbstractContextManager[isolate.Child]]
"""Starts the process of a task; it and its descendants end with the context."""


def tasks(
    *,
    worker_count: int,
    server_count: int,
    folder: pathlib.Path,
    environment: Mapping[str, str] = types.MappingProxyType({}),
    are_bound: bool = False,
) -> list[Task]:
    """Returns the tasks, a coordinator's first, with ports that are free now.

    UserError: there are too few CPUs to bind.
    """
    configs = workers.local_configs(worker_count, server_count=server_count)
    computing = [name for name in configs if name.startswith("worker")]
    shares = _cpu_shares(worker_count) if are_bound else [None] * worker_count
    cpus = dict(zip(computing, shares, strict=True))
    processes = []
    for name, config in configs.items():
        task_environment = {**environment, workers.VARIABLE: config}
        heartbeats = folder / f"{name}.heartbeats" if workers.only_serves(config) else None
        if heartbeats:
            task_environment[heartbeat.VARIABLE] = str(heartbeats)
        processes.append(
            Task(
                name,
                name if server_count else name.removeprefix("worker "),
                task_environment,
                heartbeats=heartbeats,
                may_be_lost=server_count > 0 and name in computing,
                cpus=cpus.get(name),
            )
        )
    return processes


@dataclasses.dataclass(frozen=True)
class Attempt:
    """The exit codes of all processes; if one failed, the cause, its exit code and its log."""

    exit_codes: Sequence[int | None]
    cause: failure.WorkerFailure | None = None
    exit_code: int = 0
    log: pathlib.Path | None = None
    notes: tuple[str, ...] = ()  # on earlier attempts

    @property
    def summary(self) -> str:
        """The failure and the path of its log, in one line."""
        text = str(self.cause)
        return f"{text[:1].upper()}{text[1:]}. All were ended. Log: {self.log}"


def train(
    make_tasks: Callable[[], Sequence[Task]],
    *,
    start: Start,
    folder: pathlib.Path,
    log_folder: pathlib.Path,
    restarts: int,
    heartbeat_timeout_seconds: float,
    is_over: Callable[[], bool],
    say: Say,
) -> Attempt:
    """Runs processes until they have trained, or one that the others need has failed.

    Processes that may be lost are restarted, up to `restarts` times in total. After a failure that
    may pass, all begin again with new tasks, also up to `restarts` times. Those that only serve
    are killed after `heartbeat_timeout_seconds` without a heartbeat. Once `is_over` returns True,
    all are ended. Processes leave their failures in `folder`.
    """
    attempts: list[Attempt] = []

    def attempt() -> None:
        begun = make_tasks()
        for task in begun:
            if task.cpus is not None:
                say(f"{task.title} has CPUs {format_cpus(task.cpus)} to itself.")
        with Group(begun, start=start, restarts=restarts, say=say) as group:
            first = group.first_failure(
                heartbeat_timeout_seconds=heartbeat_timeout_seconds, is_over=is_over
            )
            # Read before the others are ended, since that may cause further failures.
            codes = group.codes
            endings = {name: group.ending(name) for name, code in codes.items() if code}
            reported = failure.left_in(folder)
        ended = list(group.codes.values())
        if first is None or is_over():  # there is no other attempt
            attempts.append(Attempt(ended))
            return
        exited = [name for name in endings if (codes[name] or 0) > 0]
        if len(exited) == len(endings):
            # A worker that lost another may report it before the other reports its own failure.
            # A killed worker never reports.
            reported = failure.left_in(folder)
        cause = failure.cause_of(reported, endings, exited=exited)
        blamed = cause.name if cause.name in codes else first
        done = [name for name, code in codes.items() if code == 0]
        if done and cause.may_pass:
            before = f"{', '.join(done)} had already ended with exit code 0"
            cause = cause.model_copy(update={"message": f"{cause.message}; {before}"})
        last = Attempt(
            ended,
            cause,
            exit_code=codes[blamed] or codes[first] or 0,
            log=log_folder / workers.log_file(blamed),
        )
        attempts.append(last)
        raise failure.WorkersFailedError(last.summary, cause=cause)

    notes: tuple[str, ...] = ()
    with contextlib.suppress(failure.WorkersFailedError):  # the last attempt has it, too
        notes = failure.until_done(attempt, folder=folder, restarts=restarts, say=say)
    return dataclasses.replace(attempts[-1], notes=notes)


class Group:
    """One process for each task; all end with the context."""

    def __init__(self, tasks: Sequence[Task], *, start: Start, restarts: int = 0, say: Say) -> None:
        self._tasks = {task.name: task for task in tasks}
        self._start, self._restarts, self._say = start, restarts, say
        self._may_be_lost = {task.name for task in tasks if task.may_be_lost}
        self._given_up: list[str] = []  # in order of time
        self._killed: dict[str, str] = {}
        self._listeners: dict[str, heartbeat.Listener] = {}
        self._processes: dict[str, isolate.Child] = {}
        self._first_end, self._is_reported = math.inf, False
        self._until = contextlib.ExitStack()

    def __enter__(self) -> "Group":
        """Starts all processes."""
        with self._until:
            for name in self._tasks:
                self._begin(name)
            self._until = self._until.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Sends SIGTERM to all processes, and kills those that do not end."""
        with self._until:
            self._end()

    @property
    def codes(self) -> dict[str, int | None]:
        """Exit code of each task's last process; None while it runs."""
        return {name: process.poll() for name, process in self._processes.items()}

    def ending(self, name: str) -> str:
        """Returns how a process has ended, as a phrase."""
        return self._killed.get(name) or guard.describe_exit(self._processes[name].poll() or 0)

    def first_failure(
        self, *, heartbeat_timeout_seconds: float, is_over: Callable[[], bool]
    ) -> str | None:
        """Returns the first failure that the others cannot survive; None if training is over."""
        while not is_over():
            self._kill_silent(heartbeat_timeout_seconds)
            is_done, failed = self._check_processes()
            if is_done:
                return failed
            time.sleep(_POLL_SECONDS)
        return None

    def _begin(self, name: str) -> None:
        task = self._tasks[name]
        self._killed.pop(name, None)
        if task.heartbeats:
            self._listeners[name] = heartbeat.Listener(task.heartbeats)
        self._processes[name] = self._until.enter_context(self._start(task))

    def _kill_silent(self, timeout_seconds: float) -> None:
        for name, listener in self._listeners.items():
            process = self._processes[name]
            if process.poll() is None and listener.silent_seconds() > timeout_seconds:
                process.end()
                self._killed[name] = (
                    f"was killed after {timeout_seconds:g} s without a heartbeat: it was stopped "
                    "or hung"
                )

    def _check_processes(self) -> tuple[bool, str | None]:
        codes = self.codes
        ended = [name for name, code in codes.items() if code is not None]
        if not self._may_be_lost:
            failed = [name for name in ended if codes[name]]
            if ended and not failed and len(ended) < len(codes):
                self._report_waiting(ended)
            return bool(failed) or len(ended) == len(codes), next(iter(failed), None)
        coordinator = next(iter(codes))
        if codes[coordinator] == 0:
            return True, None
        if needed := [name for name in ended if name not in self._may_be_lost]:
            return True, needed[-1]  # the coordinator's end may follow from a server's
        for name in ended:
            if name not in self._given_up:
                self._start_again_or_give_up(name)
        is_alone = len(self._given_up) == len(self._may_be_lost)
        return is_alone, self._given_up[0] if is_alone else None

    def _start_again_or_give_up(self, name: str) -> None:
        how = f"{self._tasks[name].title} {self.ending(name)}"
        if self._restarts:
            self._restarts -= 1
            self._say(f"{how}, and is started again.")
            self._begin(name)
            return
        self._given_up.append(name)
        if len(self._given_up) < len(self._may_be_lost):
            self._say(f"{how}. The others continue without it.")

    def _report_waiting(self, ended: Sequence[str]) -> None:
        now = time.monotonic()
        self._first_end = min(self._first_end, now)
        if now > self._first_end + _TOGETHER_SECONDS and not self._is_reported:
            self._is_reported = True
            indices = ", ".join(name.removeprefix("worker ") for name in ended)
            self._say(
                f"Worker {indices} has ended, and others still run. If they wait for it, end this "
                "command: all workers have to train."
            )

    def _end(self) -> None:
        running = {name: each for name, each in self._processes.items() if each.poll() is None}
        for process in running.values():
            process.terminate()
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for name, process in running.items():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.end()
                title, seconds = self._tasks[name].title, f"{_PATIENCE_SECONDS:.0f} s"
                self._say(f"{title} did not end within {seconds}, and was killed.")


def _cpu_shares(count: int) -> list[Cpus]:
    """Returns exclusive CPUs for each process, as whole cores if possible; UserError if too few.

    A CPU is a hardware thread, as Linux schedules; a core has one or several
    (https://docs.kernel.org/admin-guide/cputopology.html).
    """
    usable = frozenset(os.sched_getaffinity(0))
    cores = sorted({_core_of(cpu) & usable for cpu in usable}, key=_place)
    cpus = [frozenset({cpu}) for core in cores for cpu in sorted(core)]
    units = cores if len(cores) >= count else cpus
    if len(units) < count:
        raise errors.UserError(
            f"Expected a CPU for each worker. Received: cpu-binding=exclusive, {count} workers and "
            f"{len(cpus)} CPUs. Start fewer workers, or leave --cpu-binding out."
        )
    ends = [len(units) * index // count for index in range(count + 1)]
    return [
        frozenset().union(*units[begin:end]) for begin, end in zip(ends, ends[1:], strict=False)
    ]


def format_cpus(cpus: Cpus) -> str:
    """Returns a list of CPUs as Linux writes it, e.g. `0-3,8`."""
    parts: list[tuple[int, int]] = []
    for cpu in sorted(cpus):
        if parts and cpu == parts[-1][1] + 1:
            parts[-1] = (parts[-1][0], cpu)
        else:
            parts.append((cpu, cpu))
    return ",".join(f"{low}-{high}" if high > low else str(low) for low, high in parts)


def _core_of(cpu: int) -> Cpus:
    """Returns the CPUs of a CPU's core; if Linux does not list them, only that CPU."""
    ranges = (one.partition("-") for one in _sysfs(cpu, "thread_siblings_list").split(",") if one)
    siblings = frozenset(
        each for low, _, high in ranges for each in range(int(low), int(high or low) + 1)
    )
    return siblings or frozenset({cpu})


def _place(core: Cpus) -> tuple[int, int]:
    first = min(core)
    return int(_sysfs(first, "physical_package_id") or 0), first


def _sysfs(cpu: int, name: str) -> str:
    try:
        return (_CPUS / f"cpu{cpu}" / "topology" / name).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
