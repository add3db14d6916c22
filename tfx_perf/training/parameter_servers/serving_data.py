"""Data that a coordinator reads, and that its workers take batch by batch.

Each worker could read all data for itself, but then two workers would train on each batch twice,
and on some in no epoch: nobody tells a worker which of them it is. From a tf.data service in the
coordinator's own process each batch goes to one worker, whichever asks first, and what calls Python
functions or looks up tables is where these are.
"""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

_JOB = "training"


@contextlib.contextmanager
def served(data: tf.data.Dataset, *, host: str) -> Iterator[tf.data.Dataset]:
    """Yields the data as workers are to read them, as long as the context lasts.

    Args:
        data: with batches for all workers together; endless.
        host: under which workers reach this process.
    """
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    _, address = dispatcher.target.split("://")
    reader = service.WorkerServer(
        service.WorkerConfig(dispatcher_address=address, worker_address=f"{host}:%port%")
    )
    port = address.rpartition(":")[2]
    try:
        yield data.apply(
            service.distribute(
                service.ShardingPolicy.OFF,  # one reader has all
                f"grpc://{host}:{port}",
                job_name=_JOB,
                compression=None,
            )
        )
    finally:
        reader.stop()
        dispatcher.stop()
