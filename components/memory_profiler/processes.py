"""The children in which MemoryProfiler measures."""

import contextlib
import pathlib
import types
from collections.abc import Callable, Mapping
from typing import Any

from tfx_perf import errors, isolate
from tfx_perf.components.memory_profiler import jobs
from tfx_perf.memory.record import Status

_NO_VARIABLES: Mapping[str, str] = types.MappingProxyType({})


class Processes:
    """Starts children for one module.

    Attributes:
        folder: where they write to, and their logs go.
    """

    def __init__(self, given: Mapping[str, Any], *, folder: pathlib.Path) -> None:
        """Starts none yet.

        Args:
            given: arguments that all of the jobs have.
            folder: see above.
        """
        self._given = given
        self.folder = folder

    def run(
        self,
        job: Callable[..., Any],
        *,
        log_name: str,
        timeout_seconds: float,
        environment: Mapping[str, str] = _NO_VARIABLES,
        **arguments: Any,
    ) -> Any:
        """Runs a job to its end.

        Args:
            job: one of `jobs`.
            log_name: of the file for its output.
            timeout_seconds: see `isolate.run`.
            environment: likewise.
            **arguments: of this job alone.

        Raises:
            UserError: see `isolate.run`; likewise the others.
        """
        with self.started(job, log_name=log_name, environment=environment, **arguments) as process:
            return process.result(timeout_seconds=timeout_seconds)

    def started(
        self,
        job: Callable[..., Any],
        *,
        log_name: str,
        environment: Mapping[str, str] = _NO_VARIABLES,
        **arguments: Any,
    ) -> contextlib.AbstractContextManager[isolate.Child]:
        """Starts a job, which runs while the context lasts.

        Args:
            job: see `run`.
            log_name: likewise.
            environment: likewise.
            **arguments: likewise.
        """
        return isolate.started(
            f"{jobs.__name__}:{job.__name__}",
            {**self._given, **arguments},
            log_path=self.folder / log_name,
            environment=environment,
            is_forked=True,
        )


def status_of(error: errors.ChildError) -> Status:
    """Returns how what the child was measuring has ended."""
    if isinstance(error, errors.TimedOutError):
        return "timed out"
    return "killed" if isinstance(error, errors.ProcessEndedError) else "failed"
