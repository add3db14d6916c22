"""`--engine kubeflow`, by way of `tfx_perf.kubeflow`.

TFX's own handler imports a runner that TFX has dropped, and no open-source server accepts what TFX
compiles instead.
"""

import contextlib
import functools
import json
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click
import yaml
from tfx.tools.cli import labels
from tfx.tools.cli.container_builder import builder
from tfx.tools.cli.handler import kubeflow_v2_dag_runner_patcher as tfx_patcher

from tfx_perf import kubeflow
from tfx_perf.cli.tfx_repair.catching import CatchingHandler, Caught
from tfx_perf.core import errors, interception
from tfx_perf.kubeflow import compiler

_PAGE_SIZE = 100
_compile_pipeline = compiler.compile_pipeline


class KubeflowHandler(CatchingHandler):
    """TFX's commands for Kubeflow Pipelines 2; options and output are TFX's."""

    function = "compile_pipeline"
    modules = ("tfx_perf.kubeflow", "tfx_perf.kubeflow.compiler")
    runner = "tfx.orchestration.kubeflow.v2.kubeflow_v2_dag_runner:KubeflowV2DagRunner"
    example = (
        "tfx_perf.kubeflow.compile_pipeline(pipeline, ...) or "
        "KubeflowV2DagRunner(...).run(pipeline)"
    )

    def create_pipeline(self, update: bool = False) -> None:
        """Uploads the pipeline of the user's file; `update` adds a version to one that is there."""
        caught, settings = self._pipeline()
        name = caught.pipeline.pipeline_info.pipeline_name
        with tempfile.TemporaryDirectory() as folder:
            path = kubeflow.compile_pipeline(
                caught.pipeline, output=pathlib.Path(folder, f"{name}.yaml"), settings=settings
            )
            if update:
                self._pipeline_id(name)
            elif self._call(self._client.get_pipeline_id, name) is not None:
                raise errors.UserError(
                    f"Expected the name of a new pipeline. Received: {name}, which the server has; "
                    "use `tfx pipeline update`, or delete it."
                )
            created = self._server.upload(path)
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
        found = self._all(self._client.list_pipelines, "pipelines")
        self.show_names([each.display_name for each in found])

    def delete_pipeline(self) -> None:
        """Deletes a pipeline with its versions; the record of its runs stays."""
        name = self.flags_dict[labels.PIPELINE_NAME]
        pipeline_id = self._pipeline_id(name)
        listing = self._client.list_pipeline_versions
        for version in list(self._all(listing, "pipeline_versions", pipeline_id)):
            self._call(
                self._client.delete_pipeline_version, pipeline_id, version.pipeline_version_id
            )
        self._call(self._client.delete_pipeline, pipeline_id)  # not while it has versions
        click.echo(f"Pipeline {name} deleted successfully.")

    def get_schema(self) -> None:
        """Says that artifacts on a cluster are not looked into."""
        click.echo("Not supported for kubeflow orchestrator.")

    def create_run(self) -> None:
        """Starts a run of the newest version."""
        name = self.flags_dict[labels.PIPELINE_NAME]
        parameters = self.flags_dict[labels.RUNTIME_PARAMETER]
        job = kubeflow.Job(pipeline=name, parameters=parameters, experiment=name)
        made = self._server.start(job)
        click.echo(f"Run created for pipeline: {name}")
        self._show(name, [self._call(self._client.get_run, made.id)])

    def list_runs(self) -> None:
        """Lists the runs of a pipeline, the newest first."""
        name = self.flags_dict[labels.PIPELINE_NAME]
        pipeline_id = self._pipeline_id(name)
        every = self._all(self._client.list_runs, "runs", sort_by="created_at desc")
        runs = [
            run
            for run in every
            if run.pipeline_version_reference
            and run.pipeline_version_reference.pipeline_id == pipeline_id
        ]
        if runs:
            self._show(name, runs)
        else:
            click.echo("No runs found.")

    def get_run(self) -> None:
        """Shows the state of a run."""
        run = self._call(self._client.get_run, self.flags_dict[labels.RUN_ID])
        self._show(self.flags_dict[labels.PIPELINE_NAME], [run])

    def delete_run(self) -> None:
        """Deletes the record of a run."""
        self._call(self._client.delete_run, self.flags_dict[labels.RUN_ID])
        click.echo("Run deleted.")

    def terminate_run(self) -> None:
        """Stops a run."""
        self._call(self._client.terminate_run, self.flags_dict[labels.RUN_ID])
        click.echo("Run terminated.")

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

    @property
    def _client(self) -> Any:
        return self._server.connection.client

    def _call(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        return self._server.connection.call(function, *arguments, **keywords)

    def _all(
        self, listing: Callable[..., Any], key: str, *arguments: Any, **keywords: Any
    ) -> Iterator[Any]:
        token = ""
        while True:
            page = self._call(
                listing, *arguments, page_token=token, page_size=_PAGE_SIZE, **keywords
            )
            yield from getattr(page, key) or ()
            token = page.next_page_token
            if not token:
                return

    def _pipeline_id(self, name: str) -> str:
        found = self._call(self._client.get_pipeline_id, name)
        if found is None:
            raise errors.UserError(
                "Expected a pipeline that the server has. "
                f"Received: pipeline_name={name}; create it first."
            )
        return found

    def _pipeline(self) -> tuple[Caught, kubeflow.KubeflowSettings]:
        caught = self.caught()
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
             self._server.run_link(run.run_id))
            for run in runs
        ]  # fmt: skip
        click.echo(self._format_table(header, rows))


class VertexPatcher(tfx_patcher.KubeflowV2DagRunnerPatcher):
    """TFX's patcher, which also takes the arguments of `compile_pipeline`, for both engines."""

    @contextlib.contextmanager
    def patch(self) -> Iterator[dict[str, Any]]:
        """Catches both while the context lasts."""
        with (
            super().patch() as context,
            interception.replacing(kubeflow, "compile_pipeline", lambda _: self._compile),
            interception.replacing(compiler, "compile_pipeline", lambda _: self._compile),
        ):
            yield context

    def _compile(
        self,
        pipeline: Any,
        *,
        output: str | os.PathLike[str],
        settings: kubeflow.KubeflowSettings | Mapping[str, Any],
    ) -> None:
        """Compiles for Vertex, into TFX's folder for the pipeline if a handler keeps one."""
        settings = kubeflow.KubeflowSettings.of(settings)
        if self._build_image_fn is not None:
            settings = settings.model_copy(update={"image": self._build_image_fn(settings.image)})
        settings = settings.model_copy(update={"target": "vertex"})
        with tempfile.TemporaryDirectory() as folder:
            compiled = pathlib.Path(folder, "pipeline.yaml")
            _compile_pipeline(pipeline, output=compiled, settings=settings)
            spec = yaml.safe_load(compiled.read_text(encoding="utf-8"))
        name = pipeline.pipeline_info.pipeline_name
        path = pathlib.Path(output)
        if self._prepare_dir_fn is not None:
            path = pathlib.Path(self._prepare_dir_fn(name), tfx_patcher.OUTPUT_FILENAME)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(spec, indent=2), encoding="utf-8")  # JSON is YAML as well
        self._run_called = True
        self._context[self.PIPELINE_NAME] = name
        self._context[self.OUTPUT_FILE_PATH] = str(path)
