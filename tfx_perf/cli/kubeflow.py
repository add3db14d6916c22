"""`tfx-perf kubeflow`: compile a pipeline for Kubeflow, check, upload, run and schedule it."""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from tfx_perf.cli import options, terminal
from tfx_perf.core import console, errors

if TYPE_CHECKING:
    from tfx_perf.kubeflow.server import Created, Job, PipelineServer, RunState

_JSON = click.option("--json", "as_json", is_flag=True, help="JSON, not text.")
_CONNECTION = "namespace", "existing_token", "cookies", "ssl_ca_cert"


@click.group("kubeflow", cls=options.Group)
def command() -> None:
    """Compiles pipelines for Kubeflow Pipelines, checks, uploads, runs and schedules them.

    Every command takes --json. The server's address is --host or KF_PIPELINES_ENDPOINT.
    """


def _server_options(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options to reach the server; the command gets a `PipelineServer` as `server`."""

    @_JSON
    @click.option("--host", metavar="URL", help="Address of the server.")
    @click.option("--namespace", help="Kubernetes namespace, in a multi-user deployment.")
    @click.option(
        "--token", "existing_token", envvar="KF_PIPELINES_TOKEN", show_envvar=True,
        help="Bearer token.",
    )  # fmt: skip
    @click.option(
        "--cookies", envvar="KF_PIPELINES_COOKIES", show_envvar=True, help="E.g. of the login page."
    )
    @click.option("--ssl-ca-cert", type=click.Path(), help="Certificate of the server's authority.")
    @functools.wraps(function)
    def with_server(*, host: str | None, **given: Any) -> None:
        connection = {name: value for name in _CONNECTION if (value := given.pop(name))}
        with console.libraries():
            from tfx_perf.kubeflow import PipelineServer

            server = PipelineServer(host, **connection)
        function(server=server, **given)

    return with_server


def _job_options(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that say what to run; the command gets a `Job` as `job`."""

    @click.argument("pipeline")
    @click.option("--version", metavar="NAME", help="Of the pipeline; the newest by default.")
    @click.option("--name", help="Of the run or schedule; by default with the time.")
    @click.option(
        "--param", "parameters", metavar="NAME=VALUE", multiple=True, callback=_parameters,
        help="May be repeated.",
    )  # fmt: skip
    @click.option("--pipeline-root", metavar="URI", help="Where the artifacts go.")
    @click.option("--experiment", default="Default", show_default=True)
    @click.option("--service-account", help="Service account of the pods.")
    @functools.wraps(function)
    def with_job(**given: Any) -> None:
        from tfx_perf.kubeflow import Job

        job = Job(**{field.name: given.pop(field.name) for field in dataclasses.fields(Job)})
        function(job=job, **given)

    return with_job


def _parameters(
    ctx: click.Context, param: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    for pair in given:
        if "=" not in pair:
            raise errors.UserError(f"Expected NAME=VALUE. Received: --param {pair}.")
    return dict(pair.split("=", 1) for pair in given)


@command.command("compile")
@click.argument("target", metavar="MODULE:FUNCTION")
@click.option("--settings", "settings_path", type=click.Path(), required=True, help="YAML file.")
@click.option("--output", type=click.Path(), default="pipeline.yaml", show_default=True)
@_JSON
def compile_command(*, target: str, settings_path: str, output: str, as_json: bool) -> None:
    """Compiles the pipeline that MODULE:FUNCTION returns.

    Standard error has a line for each thing that a run will do without.
    """
    with console.libraries() as shown, contextlib.redirect_stdout(shown):
        from tfx_perf.kubeflow import KubeflowSettings, compile_pipeline, notes

        settings = KubeflowSettings.from_yaml(settings_path)
        pipeline = options.load_pipeline(target, pathlib.Path.cwd())
        path = compile_pipeline(pipeline, output=output, settings=settings)
        remarks = notes.notes(pipeline, settings)
    if as_json:
        terminal.show_json({"path": str(path), "notes": remarks})
    else:
        for note in remarks:
            click.echo(f"Note: {note}", err=True)
        click.echo(f"Compiled for kubeflow: {path}")


@command.command("lint")
@click.argument("path", type=click.Path())
@_JSON
@click.pass_context
def lint_command(ctx: click.Context, *, path: str, as_json: bool) -> None:
    """Checks a compiled pipeline by the server's rules; exit code 1 if it would be refused."""
    with console.libraries():
        from tfx_perf.kubeflow import lint

        problems = lint.problems(lint.documents_in(path))
    if as_json:
        terminal.show_json({"path": path, "problems": problems})
    else:
        click.echo("\n".join(problems) or "No problems.")
    ctx.exit(1 if problems else 0)


@command.command("upload")
@click.argument("path", type=click.Path())
@click.option("--name", help="Of the pipeline; by default that in the file.")
@click.option("--version", metavar="NAME", help="Of the version; by default with the time.")
@_server_options
def upload_command(
    *, path: str, name: str | None, version: str | None, server: "PipelineServer", as_json: bool
) -> None:
    """Creates a pipeline from a compiled one, or another version of it."""
    _show(server.upload(path, name=name, version=version), as_json)


@command.command("run")
@_job_options
@click.option(
    "--wait", "wait_seconds", metavar="SECONDS", type=click.FloatRange(min=0),
    help="Wait up to SECONDS for the run to end; exit code 1 if it did not succeed.",
)  # fmt: skip
@_server_options
@click.pass_context
def run_command(
    ctx: click.Context, *, job: "Job", wait_seconds: float | None, server: "PipelineServer",
    as_json: bool,
) -> None:  # fmt: skip
    """Starts a run of PIPELINE, which is on the server."""
    created = server.start(job)
    if wait_seconds is None:
        _show(created, as_json)
        return
    click.echo(f"Waiting for {created.link}", err=True)
    _show_state(ctx, server.wait(created.id, timeout_seconds=wait_seconds), as_json)


@command.command("wait")
@click.argument("run_id")
@click.option(
    "--timeout", "wait_seconds", metavar="SECONDS", type=click.FloatRange(min=0), default=86400.0,
    show_default=True,
)  # fmt: skip
@_server_options
@click.pass_context
def wait_command(
    ctx: click.Context, *, run_id: str, wait_seconds: float, server: "PipelineServer",
    as_json: bool,
) -> None:  # fmt: skip
    """Waits for a run's end; exit code 1 if it did not succeed."""
    _show_state(ctx, server.wait(run_id, timeout_seconds=wait_seconds), as_json)


@command.command("schedule")
@_job_options
@click.option("--cron", help="Six fields, seconds first, e.g. '0 0 3 * * *'.")
@click.option("--every", "interval_seconds", metavar="SECONDS", type=options.WholeNumber(min=1))
@_server_options
def schedule_command(
    *, job: "Job", cron: str | None, interval_seconds: int | None, server: "PipelineServer",
    as_json: bool,
) -> None:  # fmt: skip
    """Runs PIPELINE, which is on the server, on a schedule."""
    _show(server.schedule(job, cron=cron, interval_seconds=interval_seconds), as_json)


def _show(created: "Created", as_json: bool) -> None:
    if as_json:
        terminal.show_json(dataclasses.asdict(created))
    else:
        click.echo(f"{created.name}: {created.link}")


def _show_state(ctx: click.Context, state: "RunState", as_json: bool) -> None:
    if as_json:
        terminal.show_json(dataclasses.asdict(state))
    else:
        failed = f", failed: {', '.join(state.failed_tasks)}" if state.failed_tasks else ""
        message = f" ({state.message})" if state.message else ""
        click.echo(f"{state.state.lower()}{failed}{message}: {state.link}")
    ctx.exit(0 if state.state == "SUCCEEDED" else 1)
