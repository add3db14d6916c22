"""`--engine kubeflow`, by way of `tfx_perf.kubeflow`.

TFX's own handler imports a runner that TFX has dropped, and what TFX compiles instead no
open-source server accepts.
"""

import functools
import os
import pathlib
import tempfile
from typing import Any

import click
from tfx.tools.cli import labels
from tfx.tools.cli.container_builder import builder
from tfx.tools.cli.handler import base_handler

from tfx_perf import errors, kubeflow
from tfx_perf.cli.repairs import interception, kubeflow_records, listing
from tfx_perf.kubeflow import connection

_FUNCTIONS = ("tfx_perf.kubeflow:compile_pipeline", "tfx_perf.kubeflow.compiler:compile_pipeline")
_RUNNERS = ("tfx.orchestration.kubeflow.v2.kubeflow_v2_dag_runner:KubeflowV2DagRunner",)
_ATTEMPTS = 4


class KubeflowHandler(base_handler.BaseHandler):
    """TFX's commands for Kubeflow Pipelines 2; options and output are TFX's."""

    def create_pipeline(self, update: bool = False) -> None:
        """Compiles the pipeline of the user's file and uploads it.

        Args:
            update: add a version to one that is there.
        """
        caught, settings = self._pipeline()
        name = caught.pipeline.pipeline_info.pipeline_name
        with tempfile.TemporaryDirectory() as folder:
            path = kubeflow.compile_pipeline(
                caught.pipeline, output=pathlib.Path(folder, f"{name}.yaml"), settings=settings
            )
            server = kubeflow.PipelineServer(self._endpoint, **self._client_options)
            if update:
                self._records.pipeline_id(name)
            elif self._records.has(name):
                raise errors.UserError(
                    f"Expected the name of a new pipeline. Received: {name}, which the server has; "
                    "use `tfx pipeline update`, or delete it."
                )
            created = server.upload(path)
        click.echo(f"Please access the pipeline detail page at {created.link}")
        click.echo(f'Pipeline "{name}" {"updated" if update else "created"} successfully.')

    def update_pipeline(self) -> None:
        """Uploads another version."""
        self.create_pipeline(update=True)

    def compile_pipeline(self) -> None:
        """Writes the YAML to where the user's file wants it."""
        caught, settings = self._pipeline()
        output = caught.arguments.get("output")
        if output is None:
            runner = caught.arguments["runner"]
            output = pathlib.Path(runner._output_dir, runner._output_filename).with_suffix(".yaml")
        path = kubeflow.compile_pipeline(caught.pipeline, output=output, settings=settings)
        click.echo("Pipeline compiled successfully.")
        click.echo(f"Pipeline package path: {path}")

    def list_pipelines(self) -> None:
        """Lists the server's pipelines."""
        listing.show_pipelines(self._records.pipelines())

    def delete_pipeline(self) -> None:
        """Deletes a pipeline with its versions; the record of its runs stays."""
        name = self.flags_dict[labels.PIPELINE_NAME]
        self._records.delete_pipeline(name)
        click.echo(f"Pipeline {name} deleted successfully.")

    def get_schema(self) -> None:
        """Says that artifacts on a cluster are not looked into."""
        click.echo("Not supported for kubeflow orchestrator.")

    def create_run(self) -> None:
        """Starts a run of the newest version."""
        name = self.flags_dict[labels.PIPELINE_NAME]
        parameters = self.flags_dict[labels.RUNTIME_PARAMETER]
        server = kubeflow.PipelineServer(self._endpoint, **self._client_options)
        made = server.start(kubeflow.Job(pipeline=name, parameters=parameters, experiment=name))
        click.echo(f"Run created for pipeline: {name}")
        self._show(name, [self._records.run(made.id)])

    def list_runs(self) -> None:
        """Lists the runs of a pipeline, the newest first."""
        name = self.flags_dict[labels.PIPELINE_NAME]
        runs = self._records.runs(name)
        if runs:
            self._show(name, runs)
        else:
            click.echo("No runs found.")

    def get_run(self) -> None:
        """Shows the state of a run."""
        run = self._records.run(self.flags_dict[labels.RUN_ID])
        self._show(self.flags_dict[labels.PIPELINE_NAME], [run])

    def delete_run(self) -> None:
        """Deletes the record of a run."""
        self._records.delete_run(self.flags_dict[labels.RUN_ID])
        click.echo("Run deleted.")

    def terminate_run(self) -> None:
        """Stops a run."""
        self._records.terminate_run(self.flags_dict[labels.RUN_ID])
        click.echo("Run terminated.")

    @property
    def _endpoint(self) -> str | None:
        return self.flags_dict.get(labels.ENDPOINT) or None

    @property
    def _client_options(self) -> dict[str, Any]:
        options = {
            "namespace": self.flags_dict.get(labels.NAMESPACE),
            "client_id": self.flags_dict.get(labels.IAP_CLIENT_ID),
            # TFX has no options for these two; the variables are those of `tfx-perf kubeflow`.
            "existing_token": os.environ.get("KF_PIPELINES_TOKEN"),
            "cookies": os.environ.get("KF_PIPELINES_COOKIES"),
        }
        return {name: value for name, value in options.items() if value}

    @functools.cached_property
    def _records(self) -> kubeflow_records.KubeflowRecords:
        return kubeflow_records.KubeflowRecords(
            connection.Connection(
                self._endpoint, attempts=_ATTEMPTS, client_options=self._client_options
            )
        )

    def _pipeline(self) -> tuple[interception.Caught, kubeflow.KubeflowSettings]:
        patcher = interception.CatchingPatcher(_FUNCTIONS, _RUNNERS)
        self.execute_dsl(patcher)
        if len(patcher.caught) != 1:
            raise errors.UserError(
                "Expected a file that calls tfx_perf.kubeflow.compile_pipeline(pipeline, ...) or "
                "KubeflowV2DagRunner(...).run(pipeline) once. "
                f"Received: pipeline_path={self.flags_dict[labels.PIPELINE_DSL_PATH]}, which does "
                f"{len(patcher.caught)} times."
            )
        (caught,) = patcher.caught
        runner = caught.arguments.get("runner")
        given = {"image": runner.config.default_image} if runner else caught.arguments["settings"]
        settings = kubeflow.KubeflowSettings.of(given)
        if self.flags_dict.get(labels.BUILD_IMAGE):
            image = builder.build(
                target_image=settings.image, base_image=self.flags_dict.get(labels.BASE_IMAGE)
            )
            click.echo(f'New container image "{image}" was built.')
            settings = settings.model_copy(update={"image": image})
        return caught, settings

    def _show(self, name: str, runs: list[Any]) -> None:
        header = ("pipeline_name", "run_id", "status", "created_at", "link")
        rows = [
            (name, run.run_id, run.state or "PENDING", run.created_at.isoformat(),
             self._records.link(run.run_id))
            for run in runs
        ]  # fmt: skip
        click.echo(self._format_table(header, rows))
