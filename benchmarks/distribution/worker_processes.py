"""Runs a job in several workers and takes what the first one prints."""

import os
import subprocess
import sys
from collections.abc import Sequence

import click

from tfx_perf.core import workers


def last_line_of_first(
    module: str,
    arguments: Sequence[str],
    *,
    hosts: Sequence[str],
    prefixes: Sequence[Sequence[str]] | None = None,
) -> str:
    """Returns the last line of the first worker's output, when all have ended.

    Args:
        module: the module that each worker runs.
        arguments: of the module.
        hosts: `host:port` of each.
        prefixes: arguments that precede each worker's command; None: no arguments.

    Raises:
        ClickException: a worker failed.
    """
    running = [
        subprocess.Popen(
            [*(prefixes[index] if prefixes else ()), sys.executable, "-m", module, *arguments],
            env={**os.environ, workers.VARIABLE: config},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for index, config in enumerate(workers.configs_of(hosts).values())
    ]
    outputs = [each.communicate()[0] for each in running]
    if any(each.returncode for each in running):
        raise click.ClickException(f"A worker of {module} {' '.join(arguments)} failed.")
    return outputs[0].splitlines()[-1]
