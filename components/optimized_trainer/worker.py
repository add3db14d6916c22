"""What a worker of a job runs: `python -m tfx_perf.components.optimized_trainer.worker`."""

import argparse
import logging
import os
import pathlib
import sys
import time
from collections.abc import Sequence

from tfx_perf import errors, workers
from tfx_perf.components.optimized_trainer.cluster import tf_config
from tfx_perf.components.processes import forking

_EXIT_FAILURE = 1
_EXIT_USER_ERROR = 2
_END_SECONDS = 30.0  # for threads that the module has left: the results are there

_LOGGER = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains as one of the workers of a job; returns the exit code.

    Args:
        arguments: `--job FOLDER`, which OptimizedTrainer has prepared; None: those of the
            command line.
    """
    parser = argparse.ArgumentParser(
        prog="tfx_perf.components.optimized_trainer.worker", allow_abbrev=False
    )
    parser.add_argument("--job", required=True, type=pathlib.Path, metavar="FOLDER")
    folder = parser.parse_args(arguments).job
    logging.basicConfig(level=logging.INFO)
    if workers.only_serves(os.environ.get(workers.VARIABLE, "")):
        from tfx_perf.training.parameter_servers import server

        server.serve()
    try:
        worker = tf_config.worker_of(os.environ)
    except errors.UserError as error:
        return _said(error)
    _LOGGER.info("Worker %d of %d.", worker.index, worker.count)
    # Imported here, after TF_CONFIG is set, and because they take long.
    from tfx_perf.components.optimized_trainer.workers import arrival, worker_training
    from tfx_perf.components.optimized_trainer.workers.exchange import Exchange
    from tfx_perf.components.processes.worker_failure import WorkerFailure
    from tfx_perf.tf_internals import worker_server

    exchange = Exchange(folder)
    if not exchange.is_prepared:
        return _said(
            errors.UserError(
                f"Expected a folder that OptimizedTrainer prepared for its job. Received: "
                f"job={folder}. Is the volume with distribution.job.shared_folder mounted?"
            )
        )

    def report_absence(message: str) -> None:
        failure = WorkerFailure(
            worker=worker.index,
            seconds=time.time(),
            message=message,
            is_users=False,
            may_pass=True,
        )
        exchange.report_failure(failure)

    try:
        if worker.count > 1:
            seconds = exchange.job.settings.distribution.start_timeout_seconds
            with arrival.awaited(workers.these_hosts(), seconds=seconds, report=report_absence):
                worker_server.start()
        worker_training.train(exchange, worker)
    except Exception as error:  # reported, whatever it is
        exchange.report_failure(WorkerFailure.of(error, worker=worker.index))
        if isinstance(error, errors.UserError):
            return _said(error)
        _LOGGER.exception("The training failed.")
        return _EXIT_FAILURE
    return 0


def _said(error: errors.UserError) -> int:
    print(f"tfx-perf: {error}", file=sys.stderr)
    return _EXIT_USER_ERROR


if __name__ == "__main__":
    forking.end(main(), within_seconds=_END_SECONDS)
