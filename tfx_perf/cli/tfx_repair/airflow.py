"""`--engine airflow`, implemented with `tfx_perf.pipelines.airflow`.

TFX copies only the user's file into the dags folder, without the modules that it imports, and
needs Airflow in TFX's environment. Here the pipeline is compiled and deployed; Airflow's command is
needed only to start runs.
"""

import json
import pathlib
import shutil
import tempfile
from typing import Any

import click
from tfx.tools.cli import labels

from tfx_perf.cli.tfx_repair.catching import CatchingHandler
from tfx_perf.core import errors
from tfx_perf.pipelines import airflow, parameters
from tfx_perf.pipelines.airflow import deployment, topology


class AirflowHandler(CatchingHandler):
    """TFX's commands for Airflow; options and output are TFX's."""

    function = "deploy"
    modules = ("tfx_perf.pipelines.airflow", "tfx_perf.pipelines.airflow.deployment")
    runner = "tfx.orchestration.airflow.airflow_dag_runner:AirflowDagRunner"
    example = "tfx_perf.pipelines.airflow.deploy(pipeline) or AirflowDagRunner().run(pipeline)"

    def compile_pipeline(self) -> None:
        """Compiles the pipeline as for a deployment, and deploys nothing."""
        self.execute_dsl(self)
        with tempfile.TemporaryDirectory() as folder:
            airflow.deploy(self.pipeline, dags_folder=folder, settings=self._settings())
        click.echo("Pipeline compiled successfully.")

    def list_pipelines(self) -> None:
        """Lists the deployed pipelines, without other DAGs in the folder."""
        places = deployment.find_dags_folder().glob("*/topology.json")
        names = sorted(place.parent.name for place in places)
        click.echo("\n".join(names) or "No pipelines to display.")

    def create_run(self) -> None:
        """Unpauses the DAG and starts a run."""
        name = self.flags_dict[labels.PIPELINE_NAME]
        self._check_pipeline_existence(name)
        folder = self._folder(name)
        declared = topology.read(str(folder / "pipeline.json"))
        conf = json.dumps(parameters.typed(declared, self.flags_dict[labels.RUNTIME_PARAMETER]))
        if shutil.which("airflow") is None:
            raise errors.UserError(
                "Expected Airflow's command on PATH, which runs are started with. "
                "Received: none. Activate Airflow's environment, or start the run in its UI."
            )
        # Airflow knows a DAG when its scheduler has read it, which may be minutes from now.
        self._subprocess_call(["airflow", "dags", "reserialize"])
        self._subprocess_call(["airflow", "dags", "unpause", name])
        self._subprocess_call(["airflow", "dags", "trigger", "--conf", conf, name])
        click.echo(f"Run created for pipeline: {name}")

    def _save_pipeline(self, pipeline_args: dict[str, Any]) -> None:
        dags_folder = self._folder(pipeline_args[labels.PIPELINE_NAME]).parent
        folder = airflow.deploy(self.pipeline, dags_folder=dags_folder, settings=self._settings())
        (folder / "pipeline_args.json").write_text(json.dumps(pipeline_args), encoding="utf-8")

    def _settings(self) -> airflow.AirflowSettings:
        given = self.arguments.get("settings")
        if runner := self.arguments.get("runner"):
            given = dict(runner.config.airflow_dag_config)
            if "schedule_interval" in given:
                given["schedule"] = given.pop("schedule_interval")
        settings = airflow.AirflowSettings.of(given)
        if not settings.python_path:  # as if the file had been run as a script
            folder = str(pathlib.Path(self.flags_dict[labels.PIPELINE_DSL_PATH]).parent)
            settings = settings.model_copy(update={"python_path": (folder,)})
        return settings

    def _check_pipeline_existence(self, pipeline_name: str, required: bool = True) -> None:
        folder = self._folder(pipeline_name)
        if required and not (folder / "topology.json").is_file():
            raise errors.UserError(
                "Expected a pipeline that was created before. "
                f"Received: pipeline_name={pipeline_name}, which is not in {folder.parent}."
            )
        if not required and folder.exists():
            raise errors.UserError(
                f"Expected the name of a new pipeline. Received: {pipeline_name}, which is in "
                f"{folder.parent}; use `tfx pipeline update`, or delete it."
            )

    def _get_pipeline_info_path(self, pipeline_name: str) -> str:
        return str(self._folder(pipeline_name))

    def _folder(self, pipeline_name: str) -> pathlib.Path:
        given = self.arguments.get("dags_folder")
        return deployment.find_dags_folder(given) / pipeline_name
