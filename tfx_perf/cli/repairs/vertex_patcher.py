"""`--engine vertex` for files that use `tfx_perf.kubeflow` instead of TFX's runner."""

import contextlib
import json
import os
import pathlib
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from tfx.tools.cli.handler import kubeflow_v2_dag_runner_patcher as tfx_patcher

from tfx_perf import interception, kubeflow
from tfx_perf.kubeflow import compiler

_compile_pipeline = compiler.compile_pipeline


class VertexPatcher(tfx_patcher.KubeflowV2DagRunnerPatcher):
    """TFX's patcher, which also takes what `compile_pipeline` gets.

    One file then serves both engines: `kubeflow` compiles for open-source Kubeflow Pipelines,
    `vertex` the same pipeline for Vertex AI Pipelines.
    """

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
