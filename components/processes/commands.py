"""Commands of this machine, whose standard output is read line by line while they run."""

import contextlib
import functools
import os
import pathlib
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO

from typing_extensions import override

from tfx_perf.components.processes import child_guard
from tfx_perf.components.processes.process import Process
from tfx_perf.hardware import core_shares

_OUTPUT_SECONDS = 5.0  # for the last lines: what a command has started may keep its output open

# What says nothing of the training, once for each command.
_QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONWARNINGS": "ignore::FutureWarning:google.api_core._python_version_support",
}


class Command(Process):
    """One that was started; see `started`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """Is made by `started`."""
        super().__init__(process)
        self._group = process.pid  # it leads a session

    @override
    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.send_signal(signal.SIGCONT)  # one that is stopped would not notice

    @override
    def end(self) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._group, signal.SIGKILL)
            self.wait()


@contextlib.contextmanager
def started(
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    cpus: core_shares.Cpus | None,
    log_path: pathlib.Path,
    show: Callable[[str], object],
) -> Iterator[Command]:
    """Starts a command, which runs while the context lasts, and no longer than this process.

    Args:
        arguments: the command.
        environment: variables that it has beside those of this process.
        cpus: that it is bound to; None: those of this process.
        log_path: file that its standard error is added to; its folder must exist.
        show: is called, in a thread, with each line of its standard output.
    """
    with log_path.open("ab") as log, core_shares.bound_to(cpus):
        process = subprocess.Popen(
            arguments,
            env={**_QUIET, **os.environ, "PYTHONUNBUFFERED": "1", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            errors="replace",
            start_new_session=True,
            # It does nothing that needs a lock of another thread.
            preexec_fn=functools.partial(child_guard.end_with, os.getpid()),  # noqa: PLW1509
        )
    assert process.stdout is not None  # a pipe was asked for
    reader = threading.Thread(target=_read, args=(process.stdout, show), daemon=True)
    reader.start()
    command = Command(process)
    try:
        yield command
    finally:
        command.end()
        reader.join(_OUTPUT_SECONDS)


def _read(output: IO[str], show: Callable[[str], object]) -> None:
    for line in output:
        show(line)
