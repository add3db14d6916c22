"""`--engine vertex` for files that use `tfx_perf.kubeflow` instead of TFX's runner."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from tfx.tools.cli.handler import kubeflow_v2_dag_runner_patcher as tfx_patcher

from tfx_perf import kubeflow
from tfx_perf.cli.repairs import interception
from tfx_perf.kubeflow import compiler


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
            interception.replaced(kubeflow, "compile_pipeline", self._compile),
            interception.replaced(compiler, "compile_pipeline", self._compile),
        ):
            self._real_compile = compiler
            yield context

    def _compile(
        self,
        pipeline: Any,
        *,
        output: str | os.PathLike[str],
        settings: kubeflow.KubeflowSettings | Mapping[str, Any],
    ) -> None:
        """Compiles for Vertex, into TFX's folder for the pipeline if there is one."""
