"""Runs a function in a process of its own, which may crash, hang or be killed.

The child is a fresh interpreter (a fork would inherit TensorFlow's threads in a broken state),
or a fork of one that has done nothing but imports (`child_server`), with the parent's import path
and Keras line, in a process group of its own. It and what it has started end with its parent,
however that ends (`child_guard`).
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO, Any

from tfx_perf import errors, formatting
from tfx_perf.components.processes import child_guard, child_server, child_side
from tfx_perf.training.recovery.termination import Termination

_POLL_SECONDS = 0.2
_SERVER = child_server.ChildServer()


def run_in_child(
    target: str,
    arguments: Mapping[str, Any],
    *,
    timeout_seconds: float | None,
    log_path: str | os.PathLike[str] | None,
    environment: Mapping[str, str] | None = None,
    from_server: bool = False,
) -> Any:
    """Calls a function in a child process and returns its result.

    Args:
        target: `package.module:function`; importable.
        arguments: keyword arguments of the function, JSON values.
        timeout_seconds: after this the child and all it started are killed; None: never.
        log_path: file that the child's output is written to; its folder must exist. None: it
            goes where the parent's goes. Such a child stands for its parent: SIGTERM is passed on
            to it, and takes effect here when it has ended.
        environment: variables to set beside the parent's.
        from_server: fork the child from a server that keeps the target's imports for the next
            one, where that is safe. For modules that do nothing when they are imported, and
            variables that TensorFlow reads only when it begins to run.

    Returns:
        What the function returned, a JSON value.

    Raises:
        UserError: the function raised one; the message is the same.
        MeasurementError: the function raised something else. One line with the cause and the
            path of the log, here and below.
        TimedOutError: it took longer than `timeout_seconds`.
        ProcessEndedError: the child was killed, crashed or ended itself.
    """
    where = f" Log: {log_path}" if log_path is not None else ""
    with (
        tempfile.TemporaryDirectory() as folder,
        open(log_path, "wb") if log_path is not None else contextlib.nullcontext() as log,
    ):
        request, response = pathlib.Path(folder, "request"), pathlib.Path(folder, "response")
        asked = {
            "target": target,
            "arguments": dict(arguments),
            "is_expendable": log_path is not None,
        }
        request.write_text(json.dumps(asked))
        code = None
        try:
            if from_server and log_path is not None:
                order = {
                    "target": target,
                    "request": str(request),
                    "response": str(response),
                    "log": os.path.abspath(log_path),
                    "environment": dict(environment or {}),
                }
                code = _SERVER.run(
                    order, environment=_environment(), timeout_seconds=timeout_seconds
                )
            if code is None:
                code = _run_interpreter(
                    [str(request), str(response)],
                    log=log,
                    environment={**_environment(), **(environment or {})},
                    timeout_seconds=timeout_seconds,
                )
        except subprocess.TimeoutExpired as error:
            raise errors.TimedOutError(
                f"{target} did not end within {formatting.format_seconds(error.timeout)}.{where}"
            ) from error
        if not response.exists():
            raise errors.ProcessEndedError(f"{target} {_ending(code)}.{where}")
        outcome = json.loads(response.read_text())
    if "user_error" in outcome:
        raise errors.UserError(outcome["user_error"])
    if "error" in outcome:
        raise errors.MeasurementError(f"{target} raised {outcome['error']}.{where}")
    return outcome["result"]


def import_early(modules: Sequence[str]) -> None:
    """Has the server of `from_server` import modules in the background, where there may be one.

    Args:
        modules: those that targets are in.
    """
    _SERVER.import_early(modules, environment=_environment())


def release_server() -> None:
    """Gives back the memory of the server that children were forked from, if there is one."""
    _SERVER.release()


def _run_interpreter(
    arguments: list[str],
    *,
    log: IO[bytes] | None,
    environment: Mapping[str, str],
    timeout_seconds: float | None,
) -> int:
    """Runs a fresh interpreter to its end and returns its exit code."""
    process = subprocess.Popen(
        [sys.executable, "-m", child_side.__name__, *arguments, str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )
    try:
        return process.wait(timeout_seconds) if log else _wait_as_its_shell(process)
    finally:  # also on Ctrl-C, which does not reach another process group
        process.send_signal(child_guard.END)
        process.wait()


def _wait_as_its_shell(process: subprocess.Popen) -> int:
    with Termination() as termination:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(_POLL_SECONDS)
            if termination.requested:
                process.terminate()


def _environment() -> dict[str, str]:
    """Returns the parent's environment, so changed that the child imports what it would."""
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None:
        # `tf.keras` is settled when it is first used, and tensorflow_transform may set the
        # variable after that; a child that reads it could get the other Keras line.
        legacy = tensorflow.keras.Model.__module__.startswith("tf_keras")
        environment["TF_USE_LEGACY_KERAS"] = "1" if legacy else "0"
    return environment


def _ending(return_code: int) -> str:
    if return_code == -signal.SIGKILL:
        return "was killed (SIGKILL), most likely because memory ran out"
    if return_code == -signal.SIGALRM:
        return "ran out of time (SIGALRM)"
    if return_code < 0:
        return f"crashed ({signal.Signals(-return_code).name})"
    return f"ended the process with exit code {return_code}"
