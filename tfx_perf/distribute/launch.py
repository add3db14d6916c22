"""A worker of `tfx-perf launch`: a process that runs the user's script."""

import contextlib
import os
import pathlib
import runpy
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tfx_perf import isolate
from tfx_perf.core import console, errors, workers
from tfx_perf.distribute import worker
from tfx_perf.distribute.failure import WorkerFailure
from tfx_perf.distribute.supervise import Task
from tfx_perf.isolate import forks

# Silences messages that say nothing about the training, once for each worker.
_QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONWARNINGS": "ignore::FutureWarning:google.api_core._python_version_support",
}
_FAILED = 1


def started(
    task: Task,
    script: str,
    arguments: Sequence[str],
    *,
    folder: pathlib.Path,
    log_folder: pathlib.Path,
    show: Callable[[str], object],
) -> contextlib.AbstractContextManager[isolate.Child]:
    """Starts the process of a task, which runs the script or serves the process that does.

    A failure is left in `folder`; a thread calls `show` with each line of the output.
    """
    log_path = log_folder / workers.log_file(task.name)
    given: dict[str, Any] = {
        "script": script,
        "arguments": list(arguments),
        "failure_folder": str(folder),
        "log_path": str(log_path),
    }
    return isolate.started(
        f"{worker.__name__}:serve" if task.heartbeats else f"{__name__}:{run_script.__name__}",
        {} if task.heartbeats else given,
        environment={
            "PYTHONPATH": "", **_QUIET, **os.environ, "PYTHONUNBUFFERED": "1", **task.environment,
        },
        cpus=task.cpus,
        log_path=log_path,
        show=lambda line: show(f"{task.label}: {line.rstrip()}"),  # the last may lack a newline
    )  # fmt: skip


def run_script(
    script: str, *, arguments: Sequence[str], failure_folder: str, log_path: str
) -> NoReturn:
    """Runs a script as `python SCRIPT` does, logging standard error, and ends this process."""
    sys.argv = [script, *arguments]
    script = os.path.abspath(script)
    sys.path[0] = os.path.dirname(script)
    code = _run(script, failure_folder=pathlib.Path(failure_folder), log_path=log_path)
    # If the script has failed, the other workers wait for this process to end.
    forks.end(code, within_seconds=forks.LEFT_THREADS_SECONDS if code else None)


def _run(script: str, *, failure_folder: pathlib.Path, log_path: str) -> int:
    log, name = console.leave_standard_error_to_libraries(log_path), workers.this_name()
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as error:  # as Python handles it
        failed, code = WorkerFailure.of(error, name=name), error.code or 0
        if not isinstance(code, int):
            print(code, file=log)  # the command reports it, like an exception
        if code and (failed.may_pass or not isinstance(code, int)):  # else the code suffices
            failed.leave_in(failure_folder)
        return code if isinstance(code, int) else _FAILED
    except (Exception, KeyboardInterrupt) as error:
        WorkerFailure.of(error, name=name).leave_in(failure_folder)
        with contextlib.redirect_stderr(log):
            sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            return console.EXIT_INTERRUPTED
        return console.EXIT_USER_ERROR if isinstance(error, errors.UserError) else _FAILED
    return 0
