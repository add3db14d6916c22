"""`--engine airflow`, by way of `tfx_perf.pipelines.airflow`.

TFX copies the user's file alone into the dags folder, without the modules that it imports, and
needs Airflow beside TFX. Here the pipeline is compiled and deployed; only Airflow's command is
used, to start and list runs.
"""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import Any

import click
from tfx.tools.cli import labels

from tfx_perf.cli.tfx_repair.catching import CatchingHandler, Caught
from tfx_perf.core import errors
from tfx_perf.pipelines import airflow, parameters
from tfx_perf.pipelines.airflow import deployment, topology

_TOPOLOGY = "topology.json"
_COLUMNS = ("run_id", "state", "execution_date", "start_date", "end_date")
# Airflow logs to standard output, where its JSON goes too.
_QUIET = {"AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR", "PYTHONWARNINGS": "ignore"}


class AirflowHandler(CatchingHandler):
    """TFX's commands for Airflow; options and output are TFX's."""

    function = "deploy"
    modules = ("tfx_perf.pipelines.airflow", "tfx_perf.pipelines.airflow.deployment")
    runner = "tfx.orchestration.airflow.airflow_dag_runner:AirflowDagRunner"
    example = (
        "tfx_perf.pipelines.airflow.deploy(pipeline) or AirflowDagRunner().run(pipeline)"
    )

    def create_pipeline(self, overwrite: bool = False) -> None:
        """Deploys the pipeline of the user's file; `overwrite` updates one that is there."""
        caught, settings = self._pipeline()
        name = caught.pipeline.pipeline_info.pipeline_name
        dags_folder = deployment.find_dags_folder(caught.arguments.get("dags_folder"))
        if overwrite:
            self._check_exists(dags_folder, name)
        elif (dags_folder / name).exists():
            raise errors.UserError(
                f"Expected the name of a new pipeline. Received: {name}, which is in "
                f"{dags_folder}; use `tfx pipeline update`, or delete it."
            )
        folder = airflow.deploy(caught.pipeline, dags_folder=dags_folder, settings=settings)
        arguments = {
            labels.PIPELINE_NAME: name,
            labels.PIPELINE_ROOT: caught.pipeline.pipeline_info.pipeline_root,
        }
        (folder / "pipeline_args.json").write_text(json.dumps(arguments), encoding="utf-8")
        click.echo(f'Pipeline "{name}" {"updated" if overwrite else "created"} successfully.')

    def update_pipeline(self) -> None:
        """Deploys the pipeline again."""
        self.create_pipeline(overwrite=True)

    def compile_pipeline(self) -> None:
        """Compiles the pipeline as for a deployment, and deploys nothing."""
        caught, settings = self._pipeline()
        with tempfile.TemporaryDirectory() as folder:
            airflow.deploy(caught.pipeline, dags_folder=folder, settings=settings)
        click.echo("Pipeline compiled successfully.")

    def list_pipelines(self) -> None:
        """Lists the deployed pipelines."""
        files = deployment.find_dags_folder().glob(f"*/{_TOPOLOGY}")
        self.show_names(sorted(path.parent.name for path in files))

    def delete_pipeline(self) -> None:
        """Removes a pipeline from the dags folder; Airflow keeps the record of its runs."""
        name = self.flags_dict[labels.PIPELINE_NAME]
        shutil.rmtree(self._check_exists(deployment.find_dags_folder(), name))
        click.echo(f'Pipeline "{name}" deleted successfully.')

    def get_schema(self) -> None:
        """Shows the newest schema of a pipeline's runs."""
        self._handler_home_dir = str(deployment.find_dags_folder())
        super().get_schema()

    def create_run(self) -> None:
        """Unpauses the DAG and starts a run."""
        name = self.flags_dict[labels.PIPELINE_NAME]
        folder = self._check_exists(deployment.find_dags_folder(), name)
        declared = topology.read(str(folder / "pipeline.json"))
        conf = json.dumps(parameters.typed(declared, self.flags_dict[labels.RUNTIME_PARAMETER]))
        _check_command()
        # Airflow knows a DAG when its scheduler has read it, which may be minutes from now.
        self._subprocess_call(["airflow", "dags", "reserialize", "--subdir", str(folder)])
        self._subprocess_call(["airflow", "dags", "unpause", name])
        self._subprocess_call(["airflow", "dags", "trigger", "--conf", conf, name])
        click.echo(f"Run created for pipeline: {name}")

    def list_runs(self) -> None:
        """Lists the runs of a pipeline."""
        self._show(self._runs())

    def get_run(self) -> None:
        """Shows the state of a run."""
        run_id = self.flags_dict[labels.RUN_ID]
        runs = [run for run in self._runs() if run["run_id"] == run_id]
        if not runs:
            raise errors.UserError(
                "Expected a run of the pipeline, see `tfx run list`. "
                f"Received: run_id={run_id}, pipeline_name={self.flags_dict[labels.PIPELINE_NAME]}."
            )
        self._show(runs)

    def delete_run(self) -> None:
        """Says that Airflow's command deletes no run."""
        click.echo("Not supported for Airflow.")

    def terminate_run(self) -> None:
        """Says that Airflow's command ends no run."""
        click.echo("Not supported for Airflow.")

    def _pipeline(self) -> tuple[Caught, airflow.AirflowSettings]:
        caught = self.caught()
        runner = caught.arguments.get("runner")
        given = _of_tfx(runner) if runner else caught.arguments.get("settings")
        settings = airflow.AirflowSettings.of(given)
        if not settings.python_path:  # as if the file had been run as a script
            folder = str(pathlib.Path(self.flags_dict[labels.PIPELINE_DSL_PATH]).parent)
            settings = settings.model_copy(update={"python_path": (folder,)})
        return caught, settings

    def _check_exists(self, dags_folder: pathlib.Path, name: str) -> pathlib.Path:
        folder = dags_folder / name
        if not (folder / _TOPOLOGY).is_file():
            raise errors.UserError(
                "Expected a pipeline that was created before. "
                f"Received: pipeline_name={name}, which is not in {dags_folder}."
            )
        return folder

    def _runs(self) -> list[dict[str, str]]:
        name = self.flags_dict[labels.PIPELINE_NAME]
        self._check_exists(deployment.find_dags_folder(), name)
        _check_command()
        listed = subprocess.run(
            ["airflow", "dags", "list-runs", "-d", name, "-o", "json"],
            capture_output=True, text=True, check=False, env={**os.environ, **_QUIET},
        )  # fmt: skip
        if listed.returncode != 0:
            reason = (listed.stderr or listed.stdout).strip().splitlines() or ["no output"]
            raise errors.UserError(
                "Expected Airflow to know the pipeline. "
                f"Received: pipeline_name={name} ({reason[-1]})."
            )
        return json.loads(listed.stdout)

    def _show(self, runs: list[dict[str, str]]) -> None:
        rows = [[run["dag_id"], *(run[column] for column in _COLUMNS)] for run in runs]
        click.echo(self._format_table(("pipeline_name", *_COLUMNS), rows))


def _check_command() -> None:
    if shutil.which("airflow") is None:
        raise errors.UserError(
            "Expected Airflow's command on PATH, which runs are started and listed with. "
            "Received: none. Activate Airflow's environment, or start the run in its UI."
        )


def _of_tfx(runner: Any) -> dict[str, Any]:
    given = dict(runner.config.airflow_dag_config)
    if "schedule_interval" in given:
        given["schedule"] = given.pop("schedule_interval")
    return given
