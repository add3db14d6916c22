"""`tfx-perf launch`: a training script in several workers on this machine."""

import contextlib
import pathlib
import tempfile
import time
from collections.abc import Iterator

import click

from tfx_perf.cli import options, terminal
from tfx_perf.config.distribution import DistributionSettings
from tfx_perf.core import console, errors, periodic, workers
from tfx_perf.distribute import launch, supervise
from tfx_perf.isolate.termination import Termination

_LOOK_SECONDS = 1.0  # between checks for a silent terminal


@click.command("launch", cls=options.ScriptCommand)
@click.option(
    "--workers", "count", type=options.WholeNumber(min=1), required=True,
    help="Number of worker processes.",
)
@click.option(
    "--ps", "server_count", type=options.WholeNumber(min=0), default=0, show_default=True,
    help="How many parameter servers hold the weights; tf_keras only.",
)
@click.option(
    "--cpu-binding", "binding", type=click.Choice(["none", "exclusive"]),
    default="none", show_default=True,
    help="Pin each worker to its own CPUs.",
)
@click.option(
    "--restarts", type=options.WholeNumber(min=0), default=0, show_default=True,
    help="How often to restart all workers after one has failed.",
)
@click.option(
    "--heartbeat-timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    default=DistributionSettings().heartbeat_timeout_seconds,
    show_default=True,
    help="Kill a parameter server or worker that sends no heartbeat for this long.",
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
    after ten seconds without any, a status line appears on standard error. The logs of TensorFlow
    and others, and tracebacks, go into a file for each. The first one's model and
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
    logs = pathlib.Path(log_folder or path.with_suffix(".logs").name)
    names = workers.names_of(count, server_count=server_count)
    with errors.writing_to("log", logs):
        logs.mkdir(parents=True, exist_ok=True)
        for name in names:
            (logs / workers.log_file(name)).write_bytes(b"")
    with (
        _never_silent() as status_lines,
        tempfile.TemporaryDirectory(prefix="tfx-perf-launch-") as folder,
        Termination() as termination,  # SIGTERM takes effect after all processes have been ended
    ):
        console.set_status(f"running {path.name} in {', '.join(names)}")

        def show(line: str) -> None:
            status_lines.put_off()
            with contextlib.suppress(BrokenPipeError):  # a worker must not block if no one reads
                click.echo(line, err=as_json)

        last = supervise.train(
            lambda: supervise.tasks(
                worker_count=count,
                server_count=server_count,
                folder=pathlib.Path(folder),
                environment={workers.RESTART_FOLDER_VARIABLE: folder} if restarts else {},
                are_bound=binding == "exclusive",
            ),
            start=lambda task: launch.started(
                task, script, arguments, folder=pathlib.Path(folder), log_folder=logs, show=show
            ),
            folder=pathlib.Path(folder),
            log_folder=logs,
            restarts=restarts,
            heartbeat_timeout_seconds=heartbeat_timeout,
            is_over=lambda: termination.requested,
            say=_say,
        )
        if termination.requested:
            _say("All have ended on request.")
    if as_json:
        terminal.show_json({"exit_codes": last.exit_codes, "logs": str(logs)})
    _say(last.summary if last.cause else f"Logs: {logs}")
    # As shells do, after a signal the code is 128 and its number.
    ctx.exit(last.exit_code if last.exit_code >= 0 else 128 - last.exit_code)


@contextlib.contextmanager
def _never_silent() -> Iterator[console.StatusLines]:
    """Writes the status to standard error from time to time, but not soon after workers' lines."""
    began = time.monotonic()
    lines = console.StatusLines(lambda what: _say(f"{time.monotonic() - began:7.1f} s  {what}"))
    with (
        console.status_watched() as last,
        periodic.calling(lambda: lines(last()), seconds=_LOOK_SECONDS),
    ):
        yield lines


def _say(text: str) -> None:
    click.echo(text, err=True)
