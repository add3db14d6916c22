"""A handler of TFX's that runs the user's file and catches the pipeline that a runner gets."""

import contextlib
import dataclasses
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click
from tfx.tools.cli import labels
from tfx.tools.cli.handler import base_handler

from tfx_perf.core import errors, interception

_LINE = "-" * 30


@dataclasses.dataclass(frozen=True)
class Caught:
    """A pipeline on its way to an orchestrator, and the function's arguments or the `runner`."""

    pipeline: Any
    arguments: dict[str, Any]


class CatchingHandler(base_handler.BaseHandler):
    """TFX's commands for an engine that takes pipelines through a function of tfx-perf."""

    function: str
    modules: Sequence[str]
    runner: str
    example: str

    def caught(self) -> Caught:
        """Runs the user's file and catches the pipeline that it hands over, which does not run."""
        patcher = _Patcher(self.function, self.modules, self.runner)
        self.execute_dsl(patcher)
        if len(patcher.caught) != 1:
            raise errors.UserError(
                f"Expected a file that calls {self.example} once. "
                f"Received: pipeline_path={self.flags_dict[labels.PIPELINE_DSL_PATH]}, which does "
                f"{len(patcher.caught)} times."
            )
        return patcher.caught[0]

    def show_names(self, names: Sequence[str]) -> None:
        """Prints the names of pipelines as TFX does, or that there are none."""
        click.echo("\n".join([_LINE, *names, _LINE]) if names else "No pipelines to display.")


class _Patcher:
    run_called = True  # whether anything was caught is ours to say

    def __init__(self, function: str, modules: Sequence[str], runner: str):
        self._function, self._modules, self._runner = function, modules, runner
        self.caught: list[Caught] = []

    @contextlib.contextmanager
    def patch(self) -> Iterator[dict[str, Any]]:
        """Catches the calls while the context lasts."""
        with contextlib.ExitStack() as stack:
            for module in self._modules:
                owner = importlib.import_module(module)
                stack.enter_context(
                    interception.replacing(owner, self._function, lambda _: self._called)
                )
            module, _, name = self._runner.partition(":")
            with contextlib.suppress(ImportError):
                runner = getattr(importlib.import_module(module), name)
                stack.enter_context(interception.replacing(runner, "run", self._run))
            yield {}

    def _called(self, pipeline: Any, **arguments: Any) -> None:
        self.caught.append(Caught(pipeline, arguments))

    def _run(self, _: Any) -> Callable[..., None]:
        return lambda runner, pipeline: self._called(pipeline, runner=runner)
