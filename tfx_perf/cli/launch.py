"""`tfx-perf launch`: a training script in several workers on this machine."""

import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import IO

import click

from tfx_perf import workers
from tfx_perf.cli import terminal, user_script
from tfx_perf.components.processes import child_guard
from tfx_perf.training.recovery.termination import Termination

_PATIENCE_SECONDS = 30.0  # after SIGTERM, as Kubernetes has it
_POLL_SECONDS = 0.1
_OUTPUT_SECONDS = 5.0  # for the last lines: what a worker has started may keep its output open
_SIGNALLED = 128  # what shells add to a signal's number


@click.command("launch", context_settings=user_script.CONTEXT)
@click.option(
    "--workers", "count", type=click.IntRange(min=1), required=True, help="How many train."
)
@click.option(
    "--restarts", type=click.IntRange(min=0), default=0, show_default=True,
    help="How often all are started again after one has failed.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Exit codes as JSON; what workers say to stderr."
)
@user_script.arguments
@click.pass_context
def command(
    ctx: click.Context,
    *,
    count: int,
    restarts: int,
    script: str,
    arguments: tuple[str, ...],
    as_json: bool,
) -> None:
    """Runs SCRIPT in several workers, which train together under MultiWorkerMirroredStrategy.

    Each has TF_CONFIG and the same ARGUMENTS. Their lines of output begin with their numbers; the
    first one's model and figures are the training's. If one fails, the others are ended, and the
    exit code is its own; with --restarts all begin again, from the last checkpoint where the
    settings name a training.checkpoint_folder. Ctrl-C and SIGTERM reach all of them as SIGTERM.
    """
    user_script.checked(script)
    for attempt in range(restarts + 1):
        with (
            Termination() as termination,
            _started([sys.executable, script, *arguments], count=count, err=as_json) as processes,
        ):
            failed = _first_failure(processes, termination)
        if failed is None:
            break
        code = processes[failed].returncode
        again = f"; restart {attempt + 1} of {restarts}" if attempt < restarts else ""
        terminal.show_progress(f"Worker {failed} {_ending(code)}, so that all were ended{again}.")
    if as_json:
        terminal.show_json({"exit_codes": [process.returncode for process in processes]})
    if failed is not None:
        ctx.exit(code if code > 0 else _SIGNALLED - code)


def _first_failure(
    processes: Sequence[subprocess.Popen[str]], termination: Termination
) -> int | None:
    """Waits until all have ended well, or one has failed, which it returns."""
    while not termination.requested:  # which takes effect when all have been ended
        codes = [process.poll() for process in processes]
        failed = [index for index, code in enumerate(codes) if code]
        if failed:
            return failed[0]
        if all(code == 0 for code in codes):
            return None
        time.sleep(_POLL_SECONDS)
    return None


@contextlib.contextmanager
def _started(
    arguments: Sequence[str], *, count: int, err: bool
) -> Iterator[list[subprocess.Popen[str]]]:
    """Starts all workers, and ends them with the context.

    Args:
        arguments: of the command.
        count: how many.
        err: whether what they write goes to standard error.
    """
    hosts = _free_hosts(count)
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, "PYTHONUNBUFFERED": "1"}
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
                    # There is no other thread yet.
                    preexec_fn=functools.partial(child_guard.end_with, os.getpid()),  # noqa: PLW1509
                )
            )
        for index, process in enumerate(processes):
            reader = threading.Thread(
                target=_show,
                args=(process.stdout, index),
                kwargs={"err": err},
                name=f"worker {index}",
                daemon=True,
            )
            reader.start()
            readers.append(reader)
        yield processes
    finally:
        _end(processes)
        for reader in readers:
            reader.join(_OUTPUT_SECONDS)


def _free_hosts(count: int) -> list[str]:
    with contextlib.ExitStack() as stack:  # all at once, else two could be the same
        probes = [stack.enter_context(socket.create_server(("localhost", 0))) for _ in range(count)]
        return [f"localhost:{probe.getsockname()[1]}" for probe in probes]


def _show(output: IO[str], index: int, *, err: bool) -> None:
    """Writes each line of a worker's output behind its number."""
    for line in output:
        with contextlib.suppress(BrokenPipeError):  # a worker must not wait for who reads it
            click.echo(f"{index}: {line}", nl=False, err=err)


def _end(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Ends all, those that do not end by themselves the hard way."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    for process in running:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _ending(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
