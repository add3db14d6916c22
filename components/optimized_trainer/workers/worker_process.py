"""A worker's process, from the folder that it is given to its exit code."""

import logging
import pathlib
import sys
from typing import NoReturn

from tfx_perf import errors, workers
from tfx_perf.components.optimized_trainer.workers import arrival, worker_training
from tfx_perf.components.optimized_trainer.workers.exchange import Exchange
from tfx_perf.components.processes.worker_failure import WorkerFailure
from tfx_perf.isolate import forks
from tfx_perf.tf_internals import worker_server
from tfx_perf.workers import Worker

_EXIT_FAILURE = 1
_EXIT_USER_ERROR = 2

_LOGGER = logging.getLogger(__name__)


def carry_out(folder: str) -> NoReturn:
    """Trains as the worker that `TF_CONFIG` says, and ends this process, a child.

    Args:
        folder: see `run`.
    """
    logging.basicConfig(level=logging.INFO)
    code = run(pathlib.Path(folder), workers.this())
    forks.end(code, within_seconds=forks.LEFT_THREADS_SECONDS)


def run(folder: pathlib.Path, worker: Worker) -> int:
    """Trains as one of several workers; returns the exit code.

    Args:
        folder: which OptimizedTrainer has prepared.
        worker: which one this is.
    """
    _LOGGER.info("Worker %d of %d.", worker.index, worker.count)
    exchange = Exchange(folder)
    if not exchange.is_prepared:
        return _said(
            errors.UserError(
                f"Expected a folder that OptimizedTrainer prepared for its job. Received: "
                f"job={folder}. Is the volume with distribution.job.shared_folder mounted?"
            )
        )

    def report_absence(message: str) -> None:
        exchange.report_failure(WorkerFailure.told(message, worker=worker.index))

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
