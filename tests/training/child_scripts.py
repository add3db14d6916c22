"""Scripts beside the tests, run in a process of their own."""

import os
import pathlib
import subprocess
import sys
import types
from collections.abc import Mapping


def run(
    script: types.ModuleType, *arguments: str, environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Returns the ended process of a module that is run as a script.

    Args:
        script: the module.
        *arguments: on its command line.
        environment: variables on top of this process's.
    """
    return subprocess.run(
        [sys.executable, script.__file__, *arguments],
        env={**os.environ, **(environment or {})},
        cwd=pathlib.Path(script.__file__).parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def last_line(child: "subprocess.CompletedProcess[str]") -> str:
    """Returns the last line that a script has printed, which must have ended well."""
    assert child.returncode == 0, child.stderr[-3000:]
    return child.stdout.splitlines()[-1]
