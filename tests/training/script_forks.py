"""Runs scripts as an interpreter would, in forks of one that has imported what they take.

What a script needs from the start of its process, such as its devices, is its own all the same.
Not for scripts that measure the memory of their process.
"""

import contextlib
import dataclasses
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
import traceback

import keras  # noqa: F401 (for the forks, as the next ones)
import tf_keras  # noqa: F401

from tfx_perf import (
    isolate,
    script,  # noqa: F401
)


@dataclasses.dataclass(frozen=True)
class Fork:
    """A script that runs.

    Attributes:
        process: its process.
        output: the file with its standard output.
        log: that with its standard error.
    """

    process: isolate.Child
    output: pathlib.Path
    log: pathlib.Path

    def done(self, *, timeout=300):
        """Waits for its end; returns what `subprocess.run` would.

        Args:
            timeout: in seconds.
        """
        code = self.process.wait(timeout)
        return subprocess.CompletedProcess((), code, self.output.read_text(), self.log.read_text())


@contextlib.contextmanager
def started(path, *arguments, environment=None):
    """Yields a `Fork`, which ends with the context.

    Args:
        path: of the script.
        *arguments: on its command line.
        environment: variables on top of this process's.
    """
    with tempfile.TemporaryDirectory() as name:
        output, log = (pathlib.Path(name, each) for each in ("stdout", "stderr"))
        output.touch()
        given = {"path": str(path), "arguments": list(arguments), "output": str(output)}
        with isolate.started(
            f"{__name__}:{become.__name__}",
            given,
            log_path=log,
            environment=environment,
            is_forked=True,
        ) as process:
            yield Fork(process, output, log)


def run(path, *arguments, timeout=300):
    """Returns what `subprocess.run` would.

    Args:
        path: of the script.
        *arguments: on its command line.
        timeout: in seconds.
    """
    with started(path, *arguments) as fork:
        return fork.done(timeout=timeout)


def become(*, path, arguments, output):
    """Is the script, in its process."""
    with open(output, "wb") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(path))
    try:
        runpy.run_path(path, run_name="__main__")
    except Exception:
        traceback.print_exc()  # a child hands a user's error to its parent, and prints none
        raise
