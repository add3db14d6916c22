"""Work in processes of its own: forks of one that has done the imports.

That one imports TensorFlow once and forks for every piece of work, before TensorFlow has begun to
work: a real process each time, without the seconds of the import.
"""

import dataclasses
import gc
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

_LIMIT_SECONDS = 180.0


@dataclasses.dataclass(frozen=True)
class Ended:
    signal: int  # that ended the process; 0 if none did
    output: str  # what it wrote
    error: tuple[str, str] | None  # class and message of the exception that ended it
    values: dict[str, Any]  # what it returned; empty if it did not finish


class Forks:
    """Has work done in forks of a module that calls `serve`."""

    def __init__(self, module: str, *arguments: str) -> None:
        """Starts the process that forks: the module, with arguments."""
        tests = pathlib.Path(__file__).parents[1]
        paths = [str(tests), str(tests.parent), os.environ.get("PYTHONPATH", "")]
        environment = {"PYTHONPATH": os.pathsep.join(paths), "TF_CPP_MIN_LOG_LEVEL": "2"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )

    def run(self, request: dict[str, Any], folder: pathlib.Path, *, name: str) -> Ended:
        """Runs a piece of work to its end.

        Args:
            request: what the module's work is given; JSON.
            folder: for what the process writes.
            name: of the files in it.
        """
        folder.mkdir(parents=True, exist_ok=True)
        result, log = folder / f"{name}.pickle", folder / f"{name}.log"
        files = {"result": str(result), "log": str(log)}
        self._process.stdin.write(json.dumps({"request": request, **files}) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        values = pickle.loads(result.read_bytes()) if result.exists() else {}
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        output = log.read_text() if log.exists() else ""
        return Ended(number, output, values.pop("error", None), values)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(10)


def serve(work: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Does what `Forks.run` asks for, each in a fork, until nothing more can come.

    Args:
        work: from a request to what is returned, which must not have the key `error`.
    """
    gc.freeze()  # the forks need not visit what is imported
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if not child:
            _work(work, **asked)
        print(_wait(child), flush=True)


def _work(work: Callable[..., dict[str, Any]], *, request: Any, result: str, log: str) -> None:
    with open(log, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        values = work(request)
    except BaseException as error:
        traceback.print_exc()
        values = {"error": (type(error).__name__, str(error))}
    pathlib.Path(result).write_bytes(pickle.dumps(values))
    sys.stderr.flush()
    os._exit(0)


def _wait(child: int) -> int:
    """Returns the status of the child, which is killed if it takes too long."""
    began, pause = time.perf_counter(), 0.002
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        if time.perf_counter() - began > _LIMIT_SECONDS:
            os.kill(child, signal.SIGALRM)
            return os.waitpid(child, 0)[1]
        time.sleep(pause)
        pause = min(0.05, pause * 1.1)
