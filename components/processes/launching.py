"""Processes on this machine that train together: started, and ended."""

import contextlib
import dataclasses
import pathlib
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

from tfx_perf import heartbeat, isolate
from tfx_perf.components.processes.worker_tasks import Task

_PATIENCE_SECONDS = 30.0  # after SIGTERM, as Kubernetes has it

Say = Callable[[str], object]

Start = Callable[[Task], contextlib.AbstractContextManager[isolate.Child]]
"""Starts the process of a task; with the context ends what is left of it."""


class Launched:
    """Processes that run.

    Attributes:
        tasks: what they do.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        start: Start,
        folder: pathlib.Path,
        until: contextlib.ExitStack,
    ) -> None:
        """Starts one process for each task.

        Args:
            tasks: see the class.
            start: what starts a process.
            folder: for their heartbeats.
            until: what the processes are left with.
        """
        self.tasks = [_giving_heartbeats(task, folder) for task in tasks]
        self._start, self._until = start, until
        self._listeners = {
            index: _listener(task) for index, task in enumerate(self.tasks) if task.only_serves
        }
        self._killed: dict[int, str] = {}
        self._processes = [until.enter_context(start(task)) for task in self.tasks]

    @property
    def codes(self) -> list[int | None]:
        """How the last process of each task has ended; None of one that runs."""
        return [process.poll() for process in self._processes]

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
            process = self._processes[index]
            if process.poll() is None and listener.silent_seconds() > timeout_seconds:
                process.end()
                self._killed[index] = (
                    f"gave no heartbeat for {timeout_seconds:g} s, since it was stopped or hangs, "
                    "so that it was killed"
                )

    def restart(self, index: int) -> None:
        """Starts a task again, whose process has ended."""
        self._killed.pop(index, None)
        if index in self._listeners:
            self._listeners[index] = _listener(self.tasks[index])
        self._processes[index] = self._until.enter_context(self._start(self.tasks[index]))

    def end(self, say: Say) -> None:
        """Has all end by themselves, and those that do not the hard way.

        Args:
            say: is called with what there is to say of them, a sentence.
        """
        running = {index: each for index, each in enumerate(self._processes) if each.poll() is None}
        for process in running.values():
            process.terminate()
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for index, process in running.items():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.end()
                name = self.tasks[index].name.capitalize()
                say(f"{name} did not end within {_PATIENCE_SECONDS:.0f} s, and was killed.")


@contextlib.contextmanager
def started(tasks: Sequence[Task], *, start: Start, say: Say) -> Iterator[Launched]:
    """Starts a process for each task, and ends them with the context.

    Args:
        tasks: what they do.
        start: what starts a process.
        say: is called with what there is to say of them, a sentence.
    """
    with (
        tempfile.TemporaryDirectory(prefix="tfx-perf-heartbeats-") as folder,
        contextlib.ExitStack() as until,
    ):
        launched = Launched(tasks, start=start, folder=pathlib.Path(folder), until=until)
        try:
            yield launched
        finally:
            launched.end(say)


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


def _giving_heartbeats(task: Task, folder: pathlib.Path) -> Task:
    if not task.only_serves:
        return task
    own = {heartbeat.VARIABLE: str(folder / task.name)}
    return dataclasses.replace(task, environment={**task.environment, **own})


def _listener(task: Task) -> heartbeat.Listener:
    return heartbeat.Listener(pathlib.Path(task.environment[heartbeat.VARIABLE]))
