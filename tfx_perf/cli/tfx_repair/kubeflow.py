"""`--engine kubeflow`, implemented with `tfx_perf.kubeflow`.

TFX's own handler imports a runner that TFX has dropped, and no open-source server accepts the
output of the runner that replaced it.
"""

import functools
import os
import pathlib
import tempfile
from typing import Any

import click
from tfx.tools.cli import labels
from tfx.tools.cli.container_builder import builder

from tfx_perf import kubeflow
from tfx_perf.cli.tfx_repair.catching import CatchingHandler
from tfx_perf.core import errors


class KubeflowHandler(CatchingHandler):
    """TFX's commands for Kubeflow Pipelines 2; options and output are TFX's."""

    function = "compile_pipeline"
    modules = ("tfx_perf.kubeflow", "tfx_perf.kubeflow.compiler")
    runner = "tfx.orchestration.kubeflow.v2.kubeflow_v2_dag_runner:KubeflowV2DagRunner"
    example = (
        "tfx_perf.kubeflow.compile_pipeline(pipeline, ...) or "
        "KubeflowV2DagRunner(...).run(pipeline)"
    )

    # These report that they are not supported, as TFX does; the command `kfp` has them.
    list_pipelines = delete_pipeline = get_schema = CatchingHandler.list_runs

    def compile_pipeline(self) -> None:
        """Writes the YAML to the path that the user's file gives."""
        self.execute_dsl(self)
        output = self.arguments.get("output")
        if output is None:
            runner = self.arguments["runner"]
            output = pathlib.Path(runner._output_dir, runner._output_filename).with_suffix(".yaml")
        path = kubeflow.compile_pipeline(self.pipeline, output=output, settings=self._settings())
        click.echo("Pipeline compiled successfully.")
        click.echo(f"Pipeline package path: {path}")

    def create_run(self) -> None:
        """Starts a run of the newest version."""
        name = self.flags_dict[labels.PIPELINE_NAME]
        parameters = self.flags_dict[labels.RUNTIME_PARAMETER]
        job = kubeflow.Job(pipeline=name, parameters=parameters, experiment=name)
        made = self._server.start(job)
        click.echo(f"Run created for pipeline: {name}")
        click.echo(f"Please access the run detail page at {made.link}")

    @functools.cached_property
    def _server(self) -> kubeflow.PipelineServer:
        options = {
            "namespace": self.flags_dict.get(labels.NAMESPACE),
            "client_id": self.flags_dict.get(labels.IAP_CLIENT_ID),
            # TFX has no options for these two; the variables are those of `tfx-perf kubeflow`.
            "existing_token": os.environ.get("KF_PIPELINES_TOKEN"),
            "cookies": os.environ.get("KF_PIPELINES_COOKIES"),
        }
        given = {name: value for name, value in options.items() if value}
        return kubeflow.PipelineServer(self.flags_dict.get(labels.ENDPOINT) or None, **given)

    def _check_pipeline_existence(self, pipeline_name: str, required: bool = True) -> None:
        is_there = self._server.pipeline_id(pipeline_name) is not None
        if required and not is_there:
            raise errors.UserError(
                "Expected a pipeline that the server has. "
                f"Received: pipeline_name={pipeline_name}; create it first."
            )
        if is_there and not required:
            raise errors.UserError(
                f"Expected the name of a new pipeline. Received: {pipeline_name}, which the "
                "server has; use `tfx pipeline update`, or delete it."
            )

    def _save_pipeline(self, pipeline_args: dict[str, Any]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, f"{pipeline_args[labels.PIPELINE_NAME]}.yaml")
            kubeflow.compile_pipeline(self.pipeline, output=path, settings=self._settings())
            created = self._server.upload(path)
        click.echo(f"Please access the pipeline detail page at {created.link}")

    def _settings(self) -> kubeflow.KubeflowSettings:
        runner = self.arguments.get("runner")
        given = {"image": runner.config.default_image} if runner else self.arguments["settings"]
        settings = kubeflow.KubeflowSettings.of(given)
        if self.flags_dict.get(labels.BUILD_IMAGE):
            image = builder.build(
                target_image=settings.image, base_image=self.flags_dict.get(labels.BASE_IMAGE)
            )
            click.echo(f'New container image "{image}" was built.')
            settings = settings.model_copy(update={"image": image})
        return settings
