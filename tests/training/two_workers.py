"""Runs a script as each of two or more workers."""

import contextlib
import json

from tests.ports import free_port
from tests.training import script_forks


def configurations(worker_count):
    """Returns the `TF_CONFIG` of each worker."""
    addresses = [f"localhost:{free_port()}" for _ in range(worker_count)]
    return [
        json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})
        for index in range(worker_count)
    ]


def run(script, each_ones_arguments, *, timeout=300):
    """Returns the result of `subprocess.run` for each worker.

    Args:
        script: its path.
        each_ones_arguments: the command-line arguments of each worker.
        timeout: in seconds.
    """
    with contextlib.ExitStack() as running:
        workers = [
            running.enter_context(
                script_forks.started(script, *arguments, environment={"TF_CONFIG": configured})
            )
            for arguments, configured in zip(
                each_ones_arguments, configurations(len(each_ones_arguments)), strict=True
            )
        ]
        return [worker.done(timeout=timeout) for worker in workers]


def last_lines(script, package, *arguments, timeout=300):
    """Returns the last line that each of two workers has printed.

    Args:
        script: gets the Keras package, the worker's index, and the arguments.
        package: the Keras package.
        *arguments: of the script.
        timeout: in seconds.
    """
    each_ones = [(package, str(index), *arguments) for index in range(2)]
    ended = run(script, each_ones, timeout=timeout)
    for done in ended:
        assert done.stdout, done.stderr[-2000:]
    return [done.stdout.splitlines()[-1] for done in ended]
