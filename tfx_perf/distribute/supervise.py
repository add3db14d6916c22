"""Processes on this machine that train together: started, watched, started again, ended."""

import contextlib
import dataclasses
import math
import pathlib
import subprocess
import tempfile
import time
import types
from collections.abc import Callable, Mapping, Sequence

from tfx_perf import isolate
from tfx_perf.core import workers
from tfx_perf.distribute import failure
from tfx_perf.distribute.parameter_server import heartbeat
from tfx_perf.hardware import cpu_binding
from tfx_perf.isolate import guard

_PATIENCE_SECONDS = 30.0  # after SIGTERM, as Kubernetes has it
_POLL_SECONDS = 0.1
_TOGETHER_SECONDS = 20.0  # between the ends of workers, where nothing is wrong

Say = Callable[[str], object]


@dataclasses.dataclass(frozen=True)
class Task:
    """What one of the processes does.

    `label` begins its lines of output, and `environment` and `cpus` (None: all of this process) are
    its own. It gives heartbeats if it `only_serves`; the others go on if it `may_be_lost`.
    """

    name: str
    label: str
    environment: Mapping[str, str]
    only_serves: bool = False
    may_be_lost: bool = False
    cpus: cpu_binding.Cpus | None = None


Start = Callable[[Task], contextlib.AbstractContextManager[isolate.Child]]
"""Starts the process of a task; with the context ends what is left of it."""


def tasks(
    *,
    worker_count: int,
    server_count: int = 0,
    environment: Mapping[str, str] = types.MappingProxyType({}),
    are_bound: bool = False,
) -> list[Task]:
    """Returns what processes do, a coordinator first; UserError without enough CPUs to bind."""
    configs = workers.local_configs(worker_count, server_count=server_count)
    computing = [name for name in configs if name.startswith("worker")]
    shares = cpu_binding.shares(worker_count) if are_bound else [None] * worker_count
    cpus = dict(zip(computing, shares, strict=True))
    return [
        Task(
            name,
            name if server_count else name.removeprefix("worker "),
            {**environment, workers.VARIABLE: config},
            only_serves=workers.only_serves(config),
            may_be_lost=server_count > 0 and name in computing,
            cpus=cpus.get(name),
        )
        for name, config in configs.items()
    ]


@dataclasses.dataclass(frozen=True)
class Attempt:
    """The exit codes of all processes, and if one failed its code, its log and why."""

    exit_codes: Sequence[int | None]
    cause: failure.Cause | None = None
    exit_code: int = 0
    log: pathlib.Path | None = None
    notes: tuple[str, ...] = ()  # on the attempts before

    @property
    def in_words(self) -> str:
        """What has failed, and where more is said; one line."""
        text = str(self.cause)
        return f"{text[:1].upper()}{text[1:]}. All were ended. Log: {self.log}"


def train(
    make_tasks: Callable[[], Sequence[Task]],
    *,
    start: Start,
    log_folder: pathlib.Path,
    failure_folder: pathlib.Path,
    restarts: int,
    heartbeat_timeout_seconds: float,
    is_over: Callable[[], bool],
    say: Say,
) -> Attempt:
    """Runs processes until they have trained, or one has failed without which the others cannot.

    Those that may be lost are started again, all together, up to `restarts` times, and so often do
    all begin again, with new tasks, after a failure that may pass. Those that only serve are killed
    after a time without heartbeat. Once `is_over` says so, all are ended.
    """
    attempts: list[Attempt] = []

    def attempt() -> None:
        tasks = make_tasks()
        with Group(tasks, start=start, restarts=restarts, say=say) as group:
            first = group.first_failure(
                heartbeat_timeout_seconds=heartbeat_timeout_seconds, is_over=is_over
            )
            # Before the others are ended: what they say then may follow from that.
            codes = group.codes
            endings = {index: group.ending(index) for index, code in enumerate(codes) if code}
            reported = failure.left_in(failure_folder)
        if first is None or is_over():  # nothing begins again
            attempts.append(Attempt(group.codes))
            return
        exited = [index for index in endings if (codes[index] or 0) > 0]
        if len(exited) == len(endings):
            # Who has lost another one may say so before that one does, but one that is killed
            # never.
            reported = failure.left_in(failure_folder)
        names = [task.name for task in tasks]
        cause = failure.cause_of(reported, endings, exited=exited, names=dict(enumerate(names)))
        blamed = first if cause.worker is None else cause.worker
        ended = [names[index] for index, code in enumerate(codes) if code == 0]
        if ended and cause.may_pass:
            before = f"before that {', '.join(ended)} had ended, with exit code 0"
            cause = dataclasses.replace(cause, message=f"{cause.message}; {before}")
        last = Attempt(
            group.codes,
            cause,
            exit_code=codes[blamed] or codes[first] or 0,
            log=log_folder / workers.log_file(names[blamed]),
        )
        attempts.append(last)
        raise failure.WorkersFailedError(last.in_words, cause=cause)

    notes: tuple[str, ...] = ()
    with contextlib.suppress(failure.WorkersFailedError):  # that is in the attempt, too
        notes = failure.until_done(attempt, folder=failure_folder, restarts=restarts, say=say)
    return dataclasses.replace(attempts[-1], notes=notes)


class Group:
    """A process for each task, which end with the context."""

    def __init__(self, tasks: Sequence[Task], *, start: Start, restarts: int = 0, say: Say) -> None:
        self._tasks, self._start, self._restarts, self._say = list(tasks), start, restarts, say
        self._may_be_lost = {index for index, task in enumerate(tasks) if task.may_be_lost}
        self._given_up: set[int] = set()
        self._killed: dict[int, str] = {}
        self._listeners: dict[int, heartbeat.Listener] = {}
        self._processes: dict[int, isolate.Child] = {}
        self._first_end, self._is_told = math.inf, False
        self._until = contextlib.ExitStack()

    def __enter__(self) -> "Group":
        """Starts them."""
        with self._until:
            folder = pathlib.Path(
                self._until.enter_context(
                    tempfile.TemporaryDirectory(prefix="tfx-perf-heartbeats-")
                )
            )
            for index, task in enumerate(self._tasks):
                if task.only_serves:
                    own = {heartbeat.VARIABLE: str(folder / task.name)}
                    self._tasks[index] = dataclasses.replace(
                        task, environment={**task.environment, **own}
                    )
                self._begin(index)
            self._until = self._until.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Lets all end by themselves, and kills those that do not."""
        with self._until:
            self._end()

    @property
    def codes(self) -> list[int | None]:
        """How the last process of each task has ended; None of one that runs."""
        return [process.poll() for process in self._processes.values()]

    def ending(self, index: int) -> str:
        """Returns how one has ended, in words."""
        return self._killed.get(index) or guard.in_words(self.codes[index] or 0)

    def first_failure(
        self, *, heartbeat_timeout_seconds: float, is_over: Callable[[], bool]
    ) -> int | None:
        """Returns the first failure that the others cannot survive; None if training is over."""
        while not is_over():
            self._kill_silent(heartbeat_timeout_seconds)
            is_done, failed = self._looked_at()
            if is_done:
                return failed
            time.sleep(_POLL_SECONDS)
        return None

    def _begin(self, index: int) -> None:
        task = self._tasks[index]
        self._killed.pop(index, None)
        if task.only_serves:
            path = pathlib.Path(task.environment[heartbeat.VARIABLE])
            self._listeners[index] = heartbeat.Listener(path)
        self._processes[index] = self._until.enter_context(self._start(task))

    def _kill_silent(self, timeout_seconds: float) -> None:
        for index, listener in self._listeners.items():
            process = self._processes[index]
            if process.poll() is None and listener.silent_seconds() > timeout_seconds:
                process.end()
                self._killed[index] = (
                    f"gave no heartbeat for {timeout_seconds:g} s, since it was stopped or hangs, "
                    "so that it was killed"
                )

    def _looked_at(self) -> tuple[bool, int | None]:
        """Returns whether they have ended, and which one has failed."""
        codes = self.codes
        ended = {index for index, code in enumerate(codes) if code is not None}
        if not self._may_be_lost:
            failed = {index for index in ended if codes[index]}
            if ended and not failed and len(ended) < len(codes):
                self._tell_of_those_that_run(ended)
            return bool(failed) or len(ended) == len(codes), min(failed, default=None)
        if codes[0] == 0:  # the coordinator that the others serve
            return True, None
        if needed := ended - self._may_be_lost:
            return True, max(needed)  # the coordinator's end may follow from a server's
        for index in sorted(ended - self._given_up):
            self._start_again_or_give_up(index)
        is_alone = self._given_up == self._may_be_lost
        return is_alone, min(self._given_up) if is_alone else None

    def _start_again_or_give_up(self, index: int) -> None:
        how = f"{self._tasks[index].name.capitalize()} {self.ending(index)}"
        if self._restarts:
            self._restarts -= 1
            self._say(f"{how}, and is started again.")
            self._begin(index)
            return
        self._given_up.add(index)
        if self._given_up != self._may_be_lost:
            self._say(f"{how}. The others go on without it.")

    def _tell_of_those_that_run(self, ended: set[int]) -> None:
        now = time.monotonic()
        self._first_end = min(self._first_end, now)
        if now > self._first_end + _TOGETHER_SECONDS and not self._is_told:
            self._is_told = True
            self._say(
                f"Worker {', '.join(map(str, sorted(ended)))} has ended, and others still run. If "
                "they wait for it, end this command: all workers have to train."
            )

    def _end(self) -> None:
        running = {index: each for index, each in self._processes.items() if each.poll() is None}
        for process in running.values():
            process.terminate()
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for index, process in running.items():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.end()
                name = self._tasks[index].name.capitalize()
                self._say(f"{name} did not end within {_PATIENCE_SECONDS:.0f} s, and was killed.")
