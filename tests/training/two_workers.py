"""Runs a script as each of two workers."""

import json
import os
import pathlib
import subprocess
import sys

from tests.ports import free_port

ROOT = str(pathlib.Path(__file__).parents[2])


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
    workers = [
        subprocess.Popen(
            [sys.executable, str(script), package, str(index), *arguments],
            env={**os.environ, "PYTHONPATH": ROOT, "TF_CONFIG": configured},
            stdout=subprocess.PIPE,
            text=True,
        )
        for index, configured in enumerate(configurations(2))
    ]
    try:
        return [worker.communicate(timeout=timeout)[0].splitlines()[-1] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
