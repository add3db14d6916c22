"""A process that trains for a component: `python -m tfx_perf.distribute.worker`.

Depending on `TF_CONFIG`, it serves the process that trains, or joins the other workers and trains.
"""

import argparse
import logging
import os
import pathlib
import pkgutil
import time
from collections.abc import Callable, MutableMapping, Sequence
from typing import NoReturn

from tfx_perf.core import console, errors, workers
from tfx_perf.core.workers import Worker
from tfx_perf.distribute.failure import WorkerFailure
from tfx_perf.isolate import forks

HOSTS_VARIABLE = "TFX_PERF_WORKER_HOSTS"
"""Set in a TrainJob: `host:port` of all workers, separated by commas."""

_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"  # set by Kubernetes in the pods of an indexed job
_EXIT_FAILURE = 1

_LOGGER = logging.getLogger(__name__)

Train = Callable[[pathlib.Path, Worker], None]
"""Trains as a worker, as the files in a folder say; all workers see that folder."""


def carry_out(folder: str, train: str, start_timeout_seconds: float) -> NoReturn:
    """Runs `train` (`module:function`, a `Train`), and ends this process.

    Writes failures to the folder. The workers have `start_timeout_seconds` to connect.
    """
    code = run(pathlib.Path(folder), train, start_timeout_seconds=start_timeout_seconds)
    forks.end(code, within_seconds=forks.LEFT_THREADS_SECONDS)


def run(folder: pathlib.Path, train: str, *, start_timeout_seconds: float) -> int:
    """Does what `carry_out` does; returns the exit code."""
    logging.basicConfig(level=logging.INFO)
    if workers.only_serves(os.environ.get(workers.VARIABLE, "")):
        serve()
    try:
        worker = worker_of(os.environ)
        _LOGGER.info("Worker %d of %d.", worker.index, worker.count)
        if not folder.exists():
            raise errors.UserError(
                f"Expected a folder that OptimizedTrainer prepared for its job. Received: "
                f"job={folder}. Is the volume with distribution.job.shared_folder mounted?"
            )
    except errors.UserError as error:
        return _report_user_error(error)
    own_name = workers.this_name()
    try:
        # It imports TensorFlow, so TF_CONFIG must be set before.
        function: Train = pkgutil.resolve_name(train)
        if worker.count > 1:
            _join(folder, timeout_seconds=start_timeout_seconds)
        function(folder, worker)
    except Exception as error:  # reported, whatever it is
        WorkerFailure.of(error, name=own_name).leave_in(folder)
        if isinstance(error, errors.UserError):
            return _report_user_error(error)
        _LOGGER.exception("The training failed.")
        return _EXIT_FAILURE
    return 0


def worker_of(environment: MutableMapping[str, str]) -> workers.Worker:
    """Returns which worker this process is; composes a TrainJob's `TF_CONFIG` from its variables.

    Must be called before TensorFlow is imported.
    """
    if workers.VARIABLE not in environment:
        environment[workers.VARIABLE] = _composed(environment)
    return workers.worker_of(environment[workers.VARIABLE])


def _composed(environment: MutableMapping[str, str]) -> str:
    hosts = [host for host in environment.get(HOSTS_VARIABLE, "").split(",") if host]
    index = environment.get(_INDEX_VARIABLE, "")
    if not hosts:
        raise errors.UserError(
            f"Expected {workers.VARIABLE}, as a TFJob sets it, or {HOSTS_VARIABLE}. Received: "
            "neither. OptimizedTrainer starts this program in the workers of its job."
        )
    if not index.isdecimal() or int(index) >= len(hosts):
        raise errors.UserError(
            f"Expected {_INDEX_VARIABLE} below the number of hosts, {len(hosts)}. "
            f"Received: {_INDEX_VARIABLE}={index or None}."
        )
    return workers.configs_of(hosts)[workers.name_of("worker", int(index))]


def serve() -> NoReturn:
    """Serves until it is killed: computes steps or holds weights, depending on `TF_CONFIG`."""
    import tensorflow as tf

    from tfx_perf.distribute.parameter_server import heartbeat

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol="grpc",
    )
    with heartbeat.given():
        server.join()
    raise SystemExit("TensorFlow's server has ended.")


def _join(folder: pathlib.Path, *, timeout_seconds: float) -> None:
    from tfx_perf.distribute import worker_server

    def report_absence(message: str) -> None:
        name = workers.this_name()
        absence = WorkerFailure(name=name, message=message, may_pass=True, seconds=time.time())
        absence.leave_in(folder)

    hosts = workers.these_hosts()
    with worker_server.awaited(hosts, seconds=timeout_seconds, report=report_absence):
        worker_server.start()


def _report_user_error(error: errors.UserError) -> int:
    console.tell_error(str(error), program="tfx-perf")
    return console.EXIT_USER_ERROR


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a worker of a job from its command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="tfx_perf.distribute.worker", allow_abbrev=False)
    parser.add_argument("--job", required=True, type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--train", required=True, metavar="MODULE:FUNCTION")
    parser.add_argument("--start-timeout", required=True, type=float, metavar="SECONDS")
    given = parser.parse_args(arguments)
    return run(given.job, given.train, start_timeout_seconds=given.start_timeout)


if __name__ == "__main__":
    forks.end(main(), within_seconds=forks.LEFT_THREADS_SECONDS)
