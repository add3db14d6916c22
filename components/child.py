"""Runs a function in a process of its own, which may crash, hang or be killed.

The child is a fresh interpreter (a fork would inherit TensorFlow's threads in a broken state)
with the parent's import path and Keras line, in a process group of its own. It ends with its
parent, however that ends.
"""

import contextlib
import ctypes
import importlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from typing import Any

from tfx_perf import errors

_PR_SET_PDEATHSIG = 1


def run_in_child(
    target: str,
    arguments: Mapping[str, Any],
    *,
    timeout_seconds: float,
    log_path: str | os.PathLike[str],
    environment: Mapping[str, str] | None = None,
) -> Any:
    """Calls a function in a child process and returns its result.

    Args:
        target: `package.module:function`; importable.
        arguments: keyword arguments of the function, JSON values.
        timeout_seconds: after this the child and all it started are killed.
        log_path: file that the child's output is written to; its folder must exist.
        environment: variables to set beside the parent's.

    Returns:
        What the function returned, a JSON value.

    Raises:
        UserError: the function raised one; the message is the same.
        MeasurementError: the function raised something else, or the child ended otherwise. One
            line with the cause and the path of the log.
    """
    with tempfile.TemporaryDirectory() as folder, open(log_path, "wb") as log:
        request, response = pathlib.Path(folder, "request"), pathlib.Path(folder, "response")
        request.write_text(
            json.dumps(
                {"target": target, "arguments": dict(arguments), "parent": os.getpid()}
            )
        )
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(request), str(response)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**_environment(), **(environment or {})},
            start_new_session=True,
        )
        try:
            process.wait(timeout_seconds)
        except subprocess.TimeoutExpired as error:
            raise errors.MeasurementError(
                f"{target} did not end within {timeout_seconds:g} seconds. Log: {log_path}"
            ) from error
        finally:  # also on Ctrl-C, which does not reach another process group
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if not response.exists():
            raise errors.MeasurementError(
                f"{target} {_ending(process.returncode)}. Log: {log_path}"
            )
        outcome = json.loads(response.read_text())
    if "user_error" in outcome:
        raise errors.UserError(outcome["user_error"])
    if "error" in outcome:
        raise errors.MeasurementError(f"{target} raised {outcome['error']}. Log: {log_path}")
    return outcome["result"]


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


def _end_with(parent: int) -> None:
    """Has the kernel kill this process when its parent ends, see prctl(2); Linux only."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it had ended before
        sys.exit("The parent is gone.")


def _main(request_path: str, response_path: str) -> None:
    request = json.loads(pathlib.Path(request_path).read_text())
    _end_with(request["parent"])
    with contextlib.suppress(OSError):  # if memory runs out, it shall not be the parent's end
        pathlib.Path("/proc/self/oom_score_adj").write_text("1000")
    module, _, name = request["target"].partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
        outcome = {"result": function(**request["arguments"])}
    except errors.UserError as error:
        outcome = {"user_error": str(error)}
    except Exception as error:  # reported to the parent, whatever it is
        traceback.print_exc()
        lines = str(error).splitlines() or [""]
        outcome = {"error": f"{type(error).__name__}: {lines[0]}"}
    # Complete or not there at all, even if the process is killed while it writes.
    draft = pathlib.Path(f"{response_path}.draft")
    draft.write_text(json.dumps(outcome))
    draft.rename(response_path)


if __name__ == "__main__":
    _main(*sys.argv[1:])
