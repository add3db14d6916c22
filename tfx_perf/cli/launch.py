"""`tfx-perf launch`: a training script in several workers on this machine."""

import contextlib
import functools
import sys
import tempfile
import typing
from collections.abc import Iterator, Sequence

import click

from tfx_perf import workers
from tfx_perf.cli import terminal, user_script
from tfx_perf.cli.whole_number import WholeNumber
from tfx_perf.components.processes import commands, launching
from tfx_perf.hardware import core_shares, host
from tfx_perf.settings.distribution import CpuBinding
from tfx_perf.training.recovery.termination import Termination

_SERVER = "tfx_perf.training.parameter_servers.server"
_SIGNALLED = 128  # what shells add to a signal's number


@click.command("launch", context_settings=user_script.CONTEXT)
@click.option(
    "--workers", "count", type=WholeNumber(min=1), required=True, help="How many train."
)
@click.option(
    "--ps", "server_count", type=WholeNumber(min=0), default=0, show_default=True,
    help="How many parameter servers hold the weights; tf_keras only.",
)
@click.option(
    "--cpu-binding", type=click.Choice(typing.get_args(CpuBinding)), default="none",
    show_default=True, help="Whether each worker has CPUs to itself, and no others.",
)
@click.option(
    "--restarts", type=WholeNumber(min=0), default=0, show_default=True,
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
    server_count: int,
    cpu_binding: CpuBinding,
    restarts: int,
    script: str,
    arguments: tuple[str, ...],
    as_json: bool,
) -> None:
    """Runs SCRIPT in several workers, which train together under MultiWorkerMirroredStrategy.

    Each has TF_CONFIG and the same ARGUMENTS. Their lines of output begin with their numbers; the
    first one's model and figures are the training's. If one fails, the others are ended, and the
    exit code is its own; with --restarts all begin again, from the last checkpoint where the
    settings name a training.checkpoint_folder. With --restarts the workers try plans, too; where
    that ends one of them, all begin again without. Ctrl-C and SIGTERM reach all of them as SIGTERM.

    With --cpu-binding exclusive each worker runs on a share of the CPUs of its own: NUMA nodes
    where these can be divided evenly, else cores next to each other.

    With --ps the script runs once, as the coordinator of a ParameterServerStrategy; workers and
    servers are processes that serve it. A worker that is lost does not end the others; with
    --restarts it is started again alone. An error of the script ends all at once.
    """
    user_script.checked(script)
    cores = host.cpu_count()
    if count > cores:
        terminal.show_progress(f"{count} workers share {cores} cores, and wait for one another.")
    with _environment(restarts) as environment:
        for attempt in range(restarts + 1):
            tasks = launching.tasks(
                worker_count=count,
                server_count=server_count,
                environment=environment,
                cpu_binding=cpu_binding,
            )
            for task in tasks:
                if task.cpus is not None:
                    cpus = core_shares.in_words(task.cpus)
                    terminal.show_progress(f"{task.name.capitalize()} has CPUs {cpus} to itself.")
            with (
                Termination() as termination,
                launching.started(
                    tasks,
                    start=functools.partial(
                        _started, script=[script, *arguments], err=as_json
                    ),
                    say=terminal.show_progress,
                ) as launched,
            ):
                # SIGTERM takes effect when all have been ended.
                failed = launching.first_failure(
                    launched,
                    restarts=restarts,
                    is_over=lambda: termination.requested,
                    say=terminal.show_progress,
                )
            if failed is None:
                break
            code = launched.codes[failed] or 0
            is_users = bool(server_count) and failed == 0 and code > 0  # it would come again
            is_last = is_users or attempt == restarts
            again = "" if is_last else f"; restart {attempt + 1} of {restarts}"
            how = f"{tasks[failed].name.capitalize()} {launching.ending(code)}"
            terminal.show_progress(f"{how}, so that all were ended{again}.")
            if is_last:
                break
    if as_json:
        terminal.show_json({"exit_codes": launched.codes})
    if failed is not None:
        ctx.exit(code if code > 0 else _SIGNALLED - code)


@contextlib.contextmanager
def _environment(restarts: int) -> Iterator[dict[str, str]]:
    """Yields what workers are told: with restarts, where the next ones find what these leave."""
    if not restarts:
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="tfx-perf-launch-") as folder:
        yield {workers.RESTART_FOLDER_VARIABLE: folder}


def _started(
    task: launching.Task, *, script: Sequence[str], err: bool
) -> contextlib.AbstractContextManager[launching.Process]:
    def show(line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # a worker must not wait for who reads it
            click.echo(f"{task.label}: {line}", nl=False, err=err)

    arguments = ["-m", _SERVER] if task.only_serves else script
    return commands.started(
        [sys.executable, *arguments], environment=task.environment, cpus=task.cpus, show=show
    )
