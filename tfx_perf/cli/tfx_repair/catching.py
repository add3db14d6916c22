"""A handler of TFX's that runs the user's file and catches the pipeline that a runner gets."""

import contextlib
import dataclasses
import importlib
from collections.abc import Iterator, Sequence
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

    run_called = True  # for TFX, which lets `caught` say whether anything was

    def caught(self) -> Caught:
        """Runs the user's file and catches the pipeline that it hands over, which does not run."""
        self._caught: list[Caught] = []
        self.execute_dsl(self)
        if len(self._caught) != 1:
            raise errors.UserError(
                f"Expected a file that calls {self.example} once. "
                f"Received: pipeline_path={self.flags_dict[labels.PIPELINE_DSL_PATH]}, which does "
                f"{len(self._caught)} times."
            )
        return self._caught[0]

    @contextlib.contextmanager
    def patch(self) -> Iterator[dict[str, Any]]:
        """Catches calls of the function, and of TFX's runner, while TFX runs the file."""

        def called(pipeline: Any, **arguments: Any) -> None:
            self._caught.append(Caught(pipeline, arguments))

        with contextlib.ExitStack() as stack:
            for module in self.modules:
                owner = importlib.import_module(module)
                stack.enter_context(
                    interception.replacing(owner, self.function, lambda _: called)
                )
            module, _, name = self.runner.partition(":")
            with contextlib.suppress(ImportError):
                runner = getattr(importlib.import_module(module), name)
                stack.enter_context(
                    interception.replacing(
                        runner, "run", lambda _: lambda own, pipeline: called(pipeline, runner=own)
                    )
                )
            yield {}

    def show_names(self, names: Sequence[str]) -> None:
        """Prints the names of pipelines as TFX does, or that there are none."""
        click.echo("\n".join([_LINE, *names, _LINE]) if names else "No pipelines to display.")
