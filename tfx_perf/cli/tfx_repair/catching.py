"""A TFX handler that runs the user's file and catches the pipeline passed to a runner."""

import contextlib
import importlib
import pkgutil
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfx.tools.cli import labels
from tfx.tools.cli.handler import beam_handler, dag_runner_patcher

from tfx_perf.core import errors, interception


class CatchingHandler(beam_handler.BeamHandler):
    """TFX's commands for an engine that takes pipelines through a function of tfx-perf.

    TFX's own `create`, `update` and `compile` run the file; engines differ in
    `_check_pipeline_existence` and `_save_pipeline`.

    Attributes:
        pipeline: the pipeline for the orchestrator, once the user's file has been run.
        arguments: those of the function, or TFX's `runner` that was called.
    """

    function: str
    modules: Sequence[str]
    runner: str
    example: str

    PIPELINE_NAME = dag_runner_patcher.DagRunnerPatcher.PIPELINE_NAME
    PIPELINE_ROOT = dag_runner_patcher.DagRunnerPatcher.PIPELINE_ROOT
    run_called = True  # TFX asks for it; `patch` checks the calls itself

    pipeline: Any = None
    arguments: Mapping[str, Any] = types.MappingProxyType({})

    def _get_dag_runner_patcher(self) -> "CatchingHandler":
        return self

    @contextlib.contextmanager
    def patch(self) -> Iterator[dict[str, Any]]:
        """Catches the call of the function, or of TFX's runner, while TFX runs the file."""
        caught: list[tuple[Any, dict[str, Any]]] = []
        context: dict[str, Any] = {}

        def called(pipeline: Any, **arguments: Any) -> None:
            caught.append((pipeline, arguments))

        with contextlib.ExitStack() as stack:
            for module in self.modules:
                owner = importlib.import_module(module)
                stack.enter_context(interception.replacing(owner, self.function, lambda _: called))
            with contextlib.suppress(ImportError):
                runner = pkgutil.resolve_name(self.runner)
                stack.enter_context(
                    interception.replacing(
                        runner, "run", lambda _: lambda its, pipeline: called(pipeline, runner=its)
                    )
                )
            yield context
        if len(caught) != 1:
            raise errors.UserError(
                f"Expected a file that calls {self.example} once. "
                f"Received: pipeline_path={self.flags_dict[labels.PIPELINE_DSL_PATH]}, which does "
                f"{len(caught)} times."
            )
        self.pipeline, self.arguments = caught[0]
        info = self.pipeline.pipeline_info
        context[self.PIPELINE_NAME] = info.pipeline_name
        context[self.PIPELINE_ROOT] = info.pipeline_root
