"""The command of a job's worker: `python -m tfx_perf.components.optimized_trainer.worker`."""

import argparse
import logging
import os
import pathlib
import sys
from collections.abc import Sequence

from tfx_perf.core import errors, workers
from tfx_perf.distribute.kubernetes import manifests
from tfx_perf.isolate import forks

_EXIT_USER_ERROR = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains as one of the workers of a job, by `--job FOLDER`; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="tfx_perf.components.optimized_trainer.worker", allow_abbrev=False
    )
    parser.add_argument("--job", required=True, type=pathlib.Path, metavar="FOLDER")
    folder = parser.parse_args(arguments).job
    logging.basicConfig(level=logging.INFO)
    if workers.only_serves(os.environ.get(workers.VARIABLE, "")):
        from tfx_perf.distribute.parameter_server import server

        server.serve()
    try:
        worker = manifests.worker_of(os.environ)
    except errors.UserError as error:
        print(f"tfx-perf: {error}", file=sys.stderr)
        return _EXIT_USER_ERROR
    # Imported here, after TF_CONFIG is set, and because it takes long.
    from tfx_perf.components.optimized_trainer import one_worker

    return one_worker.run(folder, worker)


if __name__ == "__main__":
    forks.end(main(), within_seconds=forks.LEFT_THREADS_SECONDS)
