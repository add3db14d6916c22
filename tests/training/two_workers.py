"""Runs a script as each of two workers."""

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


def last_lines(script, package, *arguments, timeout=300):
    """Returns the last line that each has printed.

    Args:
        script: gets the Keras package, the worker's index, and the arguments.
        package: the Keras package.
        *arguments: of the script.
        timeout: in seconds.
    """
    with contextlib.ExitStack() as running:
        workers = [
            running.enter_context(
                script_forks.started(
                    script, package, str(index), *arguments, environment={"TF_CONFIG": configured}
                )
            )
            for index, configured in enumerate(configurations(2))
        ]
        return [worker.done(timeout=timeout).stdout.splitlines()[-1] for worker in workers]
