"""What a worker of `tfx-perf launch` runs: the user's script, as `python SCRIPT` does.

Its standard error is the log; what the script prints there goes to standard output.
"""

import contextlib
import os
import pathlib
import runpy
import sys
from collections.abc import Sequence
from typing import NoReturn

from tfx_perf import console, errors, workers
from tfx_perf.components.processes.worker_failure import WorkerFailure
from tfx_perf.isolate import forks

_FAILED = 1


def run(script: str, *, arguments: Sequence[str], failure_folder: str, log_path: str) -> NoReturn:
    """Runs a script as the main module, and ends this process, a child.

    Args:
        script: the path of the user's.
        arguments: of the script.
        failure_folder: where it leaves a `WorkerFailure`.
        log_path: of its standard error.
    """
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    code = _run(
        os.path.abspath(script), failure_folder=pathlib.Path(failure_folder), log_path=log_path
    )
    # Where it has failed, the others wait for this worker.
    forks.end(code, within_seconds=forks.LEFT_THREADS_SECONDS if code else None)


def _run(script: str, *, failure_folder: pathlib.Path, log_path: str) -> int:
    """Returns the exit code."""
    log = console.leave_standard_error_to_libraries(log_path)
    worker = workers.this().index
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as error:  # as Python has it
        failure, code = WorkerFailure.of_exit(error, worker=worker), error.code or 0
        if not isinstance(code, int):
            print(code, file=log)  # the command says it, as it does of an exception
        if failure.may_pass or not isinstance(code, int):  # else the exit code says it all
            failure.leave_in(failure_folder)
        return code if isinstance(code, int) else _FAILED
    except (Exception, KeyboardInterrupt) as error:
        WorkerFailure.of(error, worker=worker).leave_in(failure_folder)
        with contextlib.redirect_stderr(log):
            sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            return console.EXIT_INTERRUPTED
        return console.EXIT_USER_ERROR if isinstance(error, errors.UserError) else _FAILED
    return 0
