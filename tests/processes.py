"""Commands that are run to their end, and what they have said."""

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any


def run(
    *command: object,
    environment: Mapping[str, str] | None = None,
    check: bool = False,
    **given: Any,
) -> "subprocess.CompletedProcess[str]":
    """Returns the ended process.

    Args:
        *command: the program and its arguments.
        environment: variables on top of this process's.
        check: whether another exit code than 0 is an error here.
        **given: to `subprocess.run`.
    """
    return subprocess.run(
        [*map(str, command)],
        check=check,
        capture_output=True,
        text=True,
        **{"env": {**os.environ, **(environment or {})}, **given},
    )


def python(*arguments: object, **given: Any) -> "subprocess.CompletedProcess[str]":
    """Runs this interpreter; see `run`."""
    return run(sys.executable, *arguments, **given)


def last_line(ended: "subprocess.CompletedProcess[str]") -> str:
    """Returns the last line that a process has printed, which must have ended well."""
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    return ended.stdout.splitlines()[-1]
