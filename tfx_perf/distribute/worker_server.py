"""Connects the workers before anything else runs in TensorFlow.

A program must create its `MultiWorkerMirroredStrategy` before anything else of TensorFlow, and a
second one hangs. But TFX, like many a `run_fn`, reads data before it creates a strategy.
"""

import contextlib
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf
from tensorflow.python.distribute import collective_all_reduce_strategy as implementation
from tensorflow.python.distribute import multi_worker_util
from tensorflow.python.eager import context

from tfx_perf.isolate import guard

# TensorFlow's default, 10 s, is too short for a worker on a busy machine or a slow volume.
# Kubernetes notices when a worker has ended.
_HEARTBEAT_TIMEOUT_MS = 60_000
_CONNECT_SECONDS = 5.0


def start() -> None:
    """Starts this worker's server for all strategies that `run_fn` makes later."""
    # The module has another path in every version of TensorFlow.
    messages = implementation.coordination_config_pb2
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec()
    context.context().configure_coordination_service(
        service_type="standalone",
        service_leader=multi_worker_util.coordination_leader(cluster),
        coordinated_jobs=[
            messages.CoordinatedJob(name=job, num_tasks=cluster.num_tasks(job))
            for job in ("chief", "worker")
            if job in cluster.jobs
        ],
        heartbeat_timeout_in_ms=_HEARTBEAT_TIMEOUT_MS,
    )
    tf.distribute.MultiWorkerMirroredStrategy()
    strategy = implementation.CollectiveAllReduceExtended
    strategy._std_server_started = True
    # The coordination service watches the other workers.
    strategy._enable_check_health = False


@contextlib.contextmanager
def awaited(
    hosts: Sequence[str], *, seconds: float, report: Callable[[str], None]
) -> Iterator[None]:
    """Kills this process after `seconds` in the context, after `report` names missing workers.

    TensorFlow waits for the other workers (`host:port`) in a call during which no Python code runs.
    So a fork watches the clock and calls `report`; this process should have no threads yet.
    """
    watch = multiprocessing.get_context("fork").Process(
        target=_watch, args=(hosts, seconds, report, os.getpid()), daemon=True
    )
    watch.start()
    try:
        yield
    finally:
        watch.kill()
        watch.join()


def _watch(
    hosts: Sequence[str], seconds: float, report: Callable[[str], None], waiting: int
) -> None:
    guard.end_with(waiting)
    time.sleep(seconds)
    missing = [index for index, host in enumerate(hosts) if not _answers(host)]
    who = " and ".join(f"worker {index} at {hosts[index]}" for index in missing)
    report(
        f"Expected all {len(hosts)} workers to be up within {seconds:.0f} s. Received: no answer "
        f"from {who or 'one of them in time'}. Look at its log, or set "
        "distribution.start_timeout_seconds to a longer time."
    )
    os.kill(waiting, signal.SIGKILL)


def _answers(host: str) -> bool:
    name, _, port = host.rpartition(":")
    try:
        with socket.create_connection((name, int(port)), _CONNECT_SECONDS):
            return True
    except OSError:
        return False
