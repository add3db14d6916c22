"""A script of the user's in several workers on this machine, as `tfx-perf launch` runs it."""

import contextlib
import functools
import os
import pathlib
import runpy
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tfx_perf import isolate
from tfx_perf.core import console, errors, workers
from tfx_perf.distribute import supervise
from tfx_perf.distribute.failure import WorkerFailure
from tfx_perf.distribute.supervise import Task
from tfx_perf.isolate import forks
from tfx_perf.isolate.termination import Termination

_SERVER = "tfx_perf.distribute.parameter_server.server:serve"
# What says nothing of the training, once for each worker.
_QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONWARNINGS": "ignore::FutureWarning:google.api_core._python_version_support",
}
_FAILED = 1


def launch(
    script: str,
    arguments: Sequence[str],
    *,
    servers: workers.ParameterServers | None,
    worker_count: int,
    are_bound: bool,
    restarts: int,
    heartbeat_timeout_seconds: float,
    log_folder: pathlib.Path,
    show: Callable[[str], object],
    say: supervise.Say,
) -> supervise.Attempt:
    """Runs a script in workers; returns what became of the last attempt.

    SIGTERM ends them all before it takes effect. Without `servers` all workers run the script;
    `are_bound` gives each CPUs to itself, and UserError without enough. `show` runs in a thread.
    """
    names = ", ".join(workers.names_of(worker_count, servers))
    console.set_status(f"running {os.path.basename(script)} in {names}")
    with (
        tempfile.TemporaryDirectory(prefix="tfx-perf-launch-") as name,
        Termination() as termination,  # it takes effect when all have been ended
    ):
        given = {"script": script, "arguments": list(arguments), "failure_folder": name}
        last = supervise.train(
            worker_count=worker_count,
            servers=servers,
            start=functools.partial(_started, given, log_folder=log_folder, show=show),
            environment={workers.RESTART_FOLDER_VARIABLE: name} if restarts else {},
            are_bound=are_bound,
            folder=pathlib.Path(name),
            log_folder=log_folder,
            restarts=restarts,
            heartbeat_timeout_seconds=heartbeat_timeout_seconds,
            is_over=lambda: termination.requested,
            say=say,
        )
        if termination.requested:
            say("All have ended, as they were told to.")
    return last


def _started(
    given: dict[str, Any],
    task: Task,
    *,
    log_folder: pathlib.Path,
    show: Callable[[str], object],
) -> contextlib.AbstractContextManager[isolate.Child]:
    log_path = log_folder / workers.log_file(task.name)
    target, arguments = f"{__name__}:{run_script.__name__}", {**given, "log_path": str(log_path)}
    if task.heartbeats:
        target, arguments = _SERVER, {}
    return isolate.started(
        target,
        arguments,
        environment={
            "PYTHONPATH": "", **_QUIET, **os.environ, "PYTHONUNBUFFERED": "1", **task.environment,
        },
        cpus=task.cpus,
        log_path=log_path,
        show=lambda line: show(f"{task.label}: {line.rstrip()}"),  # the last may lack its end
    )  # fmt: skip


def run_script(
    script: str, *, arguments: Sequence[str], failure_folder: str, log_path: str
) -> NoReturn:
    """Runs a script as `python SCRIPT` does, logging standard error, and ends this process."""
    sys.argv = [script, *arguments]
    script = os.path.abspath(script)
    sys.path[0] = os.path.dirname(script)
    code = _run(script, failure_folder=pathlib.Path(failure_folder), log_path=log_path)
    # Where it has failed, the others wait for this worker.
    forks.end(code, within_seconds=forks.LEFT_THREADS_SECONDS if code else None)


def _run(script: str, *, failure_folder: pathlib.Path, log_path: str) -> int:
    log = console.leave_standard_error_to_libraries(log_path)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as error:  # as Python has it
        failed, code = WorkerFailure.of(error), error.code or 0
        if not isinstance(code, int):
            print(code, file=log)  # the command says it, as it does of an exception
        if failed.may_pass or not isinstance(code, int):  # else the exit code says it all
            failed.leave_in(failure_folder)
        return code if isinstance(code, int) else _FAILED
    except (Exception, KeyboardInterrupt) as error:
        WorkerFailure.of(error).leave_in(failure_folder)
        with contextlib.redirect_stderr(log):
            sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            return console.EXIT_INTERRUPTED
        return console.EXIT_USER_ERROR if isinstance(error, errors.UserError) else _FAILED
    return 0
