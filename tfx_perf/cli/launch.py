"""`tfx-perf launch`: a training script in several workers on this machine."""

import contextlib
import functools
import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click

from tfx_perf import console, errors, isolate, periodic, workers
from tfx_perf.cli import options, terminal
from tfx_perf.components.processes import (
    restarting,
    script_side,
    together,
    worker_failure,
    worker_tasks,
)
from tfx_perf.components.processes.worker_tasks import Task
from tfx_perf.hardware import cpu_binding
from tfx_perf.isolate.termination import Termination
from tfx_perf.settings.distribution import DistributionSettings

_SERVER = "tfx_perf.training.parameter_servers.server:serve"
_SCRIPT = f"{script_side.__name__}:{script_side.run.__name__}"
# What says nothing of the training, once for each worker.
_QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONWARNINGS": "ignore::FutureWarning:google.api_core._python_version_support",
}
_SIGNALLED = 128  # what shells add to a signal's number
_LOOK_SECONDS = 1.0  # whether the terminal is silent


@click.command("launch", cls=options.ScriptCommand)
@click.option(
    "--workers", "count", type=options.WholeNumber(min=1), required=True, help="How many train."
)
@click.option(
    "--ps",
    "server_count",
    type=options.WholeNumber(min=0),
    default=0,
    show_default=True,
    help="How many parameter servers hold the weights; tf_keras only.",
)
@click.option(
    "--cpu-binding",
    "binding",
    type=click.Choice(["none", "exclusive"]),
    default="none",
    show_default=True,
    help="Whether each worker has CPUs to itself, and no others.",
)
@click.option(
    "--restarts",
    type=options.WholeNumber(min=0),
    default=0,
    show_default=True,
    help="How often all are started again after one has failed.",
)
@click.option(
    "--heartbeat-timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    default=DistributionSettings().heartbeat_timeout_seconds,
    show_default=True,
    help="After which parameter servers and their workers that are stopped or hang are killed.",
)
@click.option("--log", "log_folder", metavar="FOLDER", help="By default SCRIPT's name with .logs.")
@click.option(
    "--json", "as_json", is_flag=True, help="Exit codes and logs as JSON; the rest to stderr."
)
@options.script_arguments
@click.pass_context
def command(
    ctx: click.Context,
    *,
    count: int,
    server_count: int,
    binding: str,
    restarts: int,
    heartbeat_timeout: float,
    log_folder: str | None,
    script: str,
    arguments: tuple[str, ...],
    as_json: bool,
) -> None:
    """Runs SCRIPT in several workers, which train together under MultiWorkerMirroredStrategy.

    Each has TF_CONFIG and the same ARGUMENTS. Their lines of output begin with their numbers;
    after ten seconds without any a line of standard error says what is being done. What
    TensorFlow and others log, and tracebacks, go into a file for each. The first one's model and
    figures are the training's. If one fails, the others are ended, the last line says why, and
    the exit code is its own. With --restarts all begin again after a worker was killed or lost the
    others, from the last checkpoint where the settings name a training.checkpoint_folder; an error
    of the script, or an exit of its own, ends all at once. With --restarts the workers try plans,
    too; where that ends one of them, all begin again without. Ctrl-C and SIGTERM reach all of them
    as SIGTERM.

    With --cpu-binding exclusive each worker runs on a share of the CPUs of its own: whole
    cores, those of a socket next to each other.

    With --ps the script runs once, as the coordinator of a ParameterServerStrategy; workers and
    servers are processes that serve it. A worker that is lost does not end the others; with
    --restarts it is started again alone.
    """
    path = options.checked_script(script)
    servers = workers.ParameterServers(count, server_count) if server_count else None
    names = workers.names_of(count, servers)
    logs = pathlib.Path(log_folder or path.with_suffix(".logs").name)
    _empty_logs(logs, names=names)
    with (
        tempfile.TemporaryDirectory(prefix="tfx-perf-launch-") as folder,
        _never_silent() as status_lines,
    ):
        kept = {workers.RESTART_FOLDER_VARIABLE: folder} if restarts else {}
        launch = _Launch(
            lambda: worker_tasks.tasks(
                worker_count=count,
                server_count=server_count,
                environment=kept,
                are_bound=binding == "exclusive",
            ),
            train=functools.partial(
                together.train,
                start=functools.partial(
                    _started,
                    script={
                        "script": script,
                        "arguments": arguments,
                        "failure_folder": folder,
                    },
                    log_folder=logs,
                    err=as_json,
                    status_lines=status_lines,
                ),
                log_folder=logs,
                failures=lambda: worker_failure.left_in(pathlib.Path(folder)),
                restarts=restarts,
                heartbeat_timeout_seconds=heartbeat_timeout,
                say=_say,
            ),
            script=path.name,
        )
        said = f"Logs: {logs}"
        try:
            restarting.until_done(
                launch.attempt,
                restarts=restarts,
                begin_again=lambda: worker_failure.forget(pathlib.Path(folder)),
                say=_say,
            )
        except restarting.WorkersFailedError as error:
            said = str(error)
    last = launch.last
    if as_json:
        terminal.show_json({"exit_codes": last.exit_codes, "logs": str(logs)})
    _say(said)
    ctx.exit(last.exit_code if last.exit_code >= 0 else _SIGNALLED - last.exit_code)


class _Launch:
    """Has workers run a script.

    Attributes:
        last: what became of the last attempt.
    """

    def __init__(
        self,
        make_tasks: Callable[[], list[Task]],
        *,
        train: Callable[..., together.Attempt],
        script: str,
    ) -> None:
        """Starts nothing.

        Args:
            make_tasks: returns what the processes do, each time with other ports.
            train: `together.train`, which lacks what only an attempt knows.
            script: its name.
        """
        self._make_tasks, self._train, self._script = make_tasks, train, script
        self.last = together.Attempt(())

    def attempt(self) -> None:
        """Runs it once.

        Raises:
            WorkersFailedError: a worker failed.
        """
        tasks = self._make_tasks()
        for task in tasks:
            if task.cpus is not None:
                cpus = cpu_binding.in_words(task.cpus)
                _say(f"{task.name.capitalize()} has CPUs {cpus} to itself.")
        console.set_status(f"running {self._script} in {', '.join(task.name for task in tasks)}")
        with Termination() as termination:  # it takes effect when all have been ended
            self.last = self._train(tasks, is_over=lambda: termination.requested)
            if termination.requested:
                _say("All have ended, as they were told to.")
        cause = self.last.cause
        if cause is not None:
            text = str(cause)
            raise restarting.WorkersFailedError(
                f"{text[:1].upper()}{text[1:]}. All were ended. Log: {self.last.log}", cause=cause
            )


@contextlib.contextmanager
def _never_silent() -> Iterator[console.StatusLines]:
    """Says on standard error, while the context lasts, what is being done if nothing else is said.

    Yields:
        What is to be put off with each line of the workers.
    """
    began = time.monotonic()
    lines = console.StatusLines(lambda what: _say(f"{time.monotonic() - began:7.1f} s  {what}"))
    with (
        console.status_watched() as last,
        periodic.calling(lambda: lines(last()), seconds=_LOOK_SECONDS),
    ):
        yield lines


def _started(
    task: Task,
    *,
    script: Mapping[str, Any],
    log_folder: pathlib.Path,
    err: bool,
    status_lines: console.StatusLines,
) -> contextlib.AbstractContextManager[isolate.Child]:
    def show(line: str) -> None:
        status_lines.put_off()
        with contextlib.suppress(BrokenPipeError):  # a worker must not wait for who reads it
            click.echo(f"{task.label}: {line.rstrip()}", err=err)  # the last may lack its end

    log_path = log_folder / workers.log_file(task.name)
    given: Mapping[str, Any] = {} if task.only_serves else {**script, "log_path": str(log_path)}
    own = {"PYTHONPATH": "", **_QUIET, **os.environ, "PYTHONUNBUFFERED": "1"}
    return isolate.started(
        _SERVER if task.only_serves else _SCRIPT,
        given,
        environment={**own, **task.environment},
        cpus=task.cpus,
        log_path=log_path,
        show=show,
    )


def _empty_logs(folder: pathlib.Path, *, names: Sequence[str]) -> None:
    """Has the log of each process be there, without what another launch has left.

    Raises:
        UserError: the folder cannot be made, or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / workers.log_file(name)).write_bytes(b"")
    except OSError as error:
        raise errors.UserError(
            "Expected a folder that can be written to, for what libraries log. "
            f"Received: log={folder} ({error.strerror})."
        ) from error


def _say(text: str) -> None:
    click.echo(text, err=True)
