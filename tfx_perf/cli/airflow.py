"""`tfx-perf airflow`: pipelines on Airflow."""

import contextlib
import os
import pathlib

import click

from tfx_perf.cli import options, terminal
from tfx_perf.core import console


@click.group("airflow", cls=options.Group)
def command() -> None:
    """Runs pipelines on Airflow."""


@command.command("deploy")
@click.argument("pipeline", metavar="MODULE:NAME")
@click.option(
    "--dags-folder", metavar="DIR", help="Of Airflow; by default that of AIRFLOW_HOME's settings."
)
@click.option("--settings", "settings_path", metavar="YAML", help="Settings of DAG and tasks.")
@click.option(
    "--project", metavar="DIR", default=".", show_default=True,
    type=click.Path(exists=True, file_okay=False),
    help="Folder that the pipeline's modules are imported from, here and by the tasks.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="JSON, not text.")
def deploy_command(
    *,
    pipeline: str,
    dags_folder: str | None,
    settings_path: str | None,
    project: str,
    as_json: bool,
) -> None:
    """Deploys a pipeline to Airflow, or updates it there.

    NAME in MODULE is a Pipeline, or a function without arguments that returns one. The DAG runs
    each node with the Python that runs this command; Airflow may have another one.
    """
    folder = os.path.abspath(project)
    with (
        console.libraries() as shown,
        terminal.working("Compiling", file=shown),
        contextlib.redirect_stdout(shown),
    ):
        from tfx_perf.pipelines.airflow import AirflowSettings, deploy, deployment

        place = deployment.find_dags_folder(dags_folder)  # before the pipeline, which imports TFX
        settings = AirflowSettings.from_yaml(settings_path) if settings_path else AirflowSettings()
        if not settings.container:
            settings = settings.model_copy(update={"python_path": (*settings.python_path, folder)})
        source = options.load_pipeline(pipeline, pathlib.Path(folder))
        deployed = deploy(source, dags_folder=place, settings=settings)
    if as_json:
        terminal.show_json({"dag_id": deployed.name, "folder": str(deployed)})
    else:
        click.echo(f"DAG {deployed.name} in {deployed}")
