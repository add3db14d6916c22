"""Several workers on this machine: processes that train together."""

import contextlib
import functools
import math
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO

from tfx_perf import workers
from tfx_perf.components.processes import child_guard

_PATIENCE_SECONDS = 30.0  # after SIGTERM, as Kubernetes has it
_POLL_SECONDS = 0.1
_TOGETHER_SECONDS = 20.0  # between the ends of workers, where nothing is wrong
_OUTPUT_SECONDS = 5.0  # for the last lines: what a worker has started may keep its output open

# What says nothing of the training, once for each worker.
_QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONWARNINGS": "ignore::FutureWarning:google.api_core._python_version_support",
}

Processes = Sequence["subprocess.Popen[str]"]


@contextlib.contextmanager
def started(
    arguments: Sequence[str],
    *,
    count: int,
    show: Callable[[int, str], object],
    say: Callable[[str], None],
) -> Iterator[Processes]:
    """Starts workers, each with `TF_CONFIG`, and ends them with the context.

    They end with this process, too, however that ends.

    Args:
        arguments: of the command that each of them runs.
        count: how many there are.
        show: is called, in a thread for each, with a worker's index and a line of its output.
        say: is called with what there is to say of them, a sentence.
    """
    hosts = _free_hosts(count)
    environment = {**_QUIET, **os.environ, "PYTHONUNBUFFERED": "1"}
    processes: list[subprocess.Popen[str]] = []
    readers: list[threading.Thread] = []
    try:
        for index in range(count):  # before any thread, as they are forks of this process
            configured = workers.config_of(workers.Worker(index, count), hosts=hosts)
            processes.append(
                subprocess.Popen(
                    arguments,
                    env={**environment, workers.VARIABLE: configured},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    start_new_session=True,
                    # It does nothing that needs a lock of another thread.
                    preexec_fn=functools.partial(child_guard.end_with, os.getpid()),  # noqa: PLW1509
                )
            )
        for index, process in enumerate(processes):
            reader = threading.Thread(
                target=_read,
                args=(process.stdout, index, show),
                name=f"worker {index}",
                daemon=True,
            )
            reader.start()
            readers.append(reader)
        yield processes
    finally:
        _end(processes, say)
        for reader in readers:
            reader.join(_OUTPUT_SECONDS)


def first_failure(
    processes: Processes, *, is_over: Callable[[], bool], say: Callable[[str], None]
) -> int | None:
    """Waits for workers; returns the first one that has failed, None if all have ended well.

    Args:
        processes: the workers.
        is_over: asked now and then; once it says so, None is returned.
        say: as for `started`.
    """
    first_end = None
    while not is_over():
        codes = [process.poll() for process in processes]
        failed = [index for index, code in enumerate(codes) if code]
        if failed:
            return failed[0]
        if all(code == 0 for code in codes):
            return None
        if 0 in codes and first_end is None:
            first_end = time.monotonic()
        if first_end is not None and time.monotonic() > first_end + _TOGETHER_SECONDS:
            first_end = math.inf  # it is said once
            ended = ", ".join(str(index) for index, code in enumerate(codes) if code == 0)
            say(
                f"Worker {ended} has ended, and others still run. If they wait for it, end this "
                "command: all workers have to train."
            )
        time.sleep(_POLL_SECONDS)
    return None


def ending(code: int) -> str:
    """Returns how a process ended, in words.

    Args:
        code: as `subprocess` has it.
    """
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _free_hosts(count: int) -> list[str]:
    with contextlib.ExitStack() as stack:  # all at once, else two could be the same
        probes = [stack.enter_context(socket.create_server(("localhost", 0))) for _ in range(count)]
        return [f"localhost:{probe.getsockname()[1]}" for probe in probes]


def _read(output: IO[str], index: int, show: Callable[[int, str], object]) -> None:
    for line in output:
        show(index, line)


def _end(processes: Processes, say: Callable[[str], None]) -> None:
    """Ends all, those that do not end by themselves the hard way."""
    running = {index: each for index, each in enumerate(processes) if each.poll() is None}
    for process in running.values():
        process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    for index, process in running.items():
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            say(f"Worker {index} did not end within {_PATIENCE_SECONDS:.0f} s, and was killed.")
