"""Runs the user's file and catches the pipeline that it hands to a runner."""

import contextlib
import dataclasses
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tfx_perf import interception


@dataclasses.dataclass(frozen=True)
class Caught:
    """A pipeline on its way to an orchestrator.

    Attributes:
        pipeline: as the user's file made it.
        arguments: that the function was called with beside it; for a runner of TFX's, the
            object itself, as `runner`.
    """

    pipeline: Any
    arguments: dict[str, Any]


class CatchingPatcher:
    """What TFX's handlers run the user's file with.

    Like TFX's own patchers, but for functions that take a pipeline as well as for runners, and
    without a run.

    Args:
        functions: `module:function`, each called with the pipeline first.
        runners: `module:class` of TFX's runners; those that cannot be imported are left out.
    """

    run_called = True  # whether anything was caught is ours to say

    def __init__(self, functions: Sequence[str], runners: Sequence[str] = ()):
        """Catches nothing yet."""
        self._functions = functions
        self._runners = runners
        self.caught: list[Caught] = []

    @contextlib.contextmanager
    def patch(self) -> Iterator[dict[str, Any]]:
        """Catches what is called while the context lasts."""
        with contextlib.ExitStack() as stack:
            for target in self._functions:
                module, _, name = target.partition(":")
                owner = importlib.import_module(module)
                stack.enter_context(interception.replacing(owner, name, lambda _: self._function))
            for target in self._runners:
                module, _, name = target.partition(":")
                with contextlib.suppress(ImportError):
                    runner = getattr(importlib.import_module(module), name)
                    stack.enter_context(interception.replacing(runner, "run", lambda _: self._run))
            yield {}

    def _function(self, pipeline: Any, **arguments: Any) -> None:
        self.caught.append(Caught(pipeline, arguments))

    @property
    def _run(self) -> Callable[..., None]:
        def run(runner: Any, pipeline: Any) -> None:
            self.caught.append(Caught(pipeline, {"runner": runner}))

        return run
