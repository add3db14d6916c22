"""Processes on this machine that train together: started, and ended."""

import contextlib
import functools
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO

from tfx_perf import heartbeat, workers
from tfx_perf.components.processes import child_guard
from tfx_perf.components.processes.worker_tasks import Task
from tfx_perf.hardware import core_shares

_PATIENCE_SECONDS = 30.0  # after SIGTERM, as Kubernetes has it
_OUTPUT_SECONDS = 5.0  # for the last lines: what a worker has started may keep its output open

# What says nothing of the training, once for each worker.
_QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONWARNINGS": "ignore::FutureWarning:google.api_core._python_version_support",
}

Say = Callable[[str], object]
Show = Callable[[int, str], object]


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
                process.wait()
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


def _read(output: IO[str], index: int, show: Show) -> None:
    for line in output:
        show(index, line)
