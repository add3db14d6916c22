"""Data that a coordinator reads, and that its workers take batch by batch.

If each worker read all data, two would train on each batch twice, and on some in no epoch: nobody
tells a worker which it is. A tf.data service in the coordinator's process gives each batch to the
worker that asks first, and has the Python functions and tables that the data need.

Stopping a reader waits with Python's lock held, which a Python function in the data would wait for.
So the data are read to an end first.
"""

import collections
import contextlib
from collections.abc import Iterator

import tensorflow as tf

_JOB = "training"


@contextlib.contextmanager
def served(data: tf.data.Dataset, *, host: str) -> Iterator[tf.data.Dataset]:
    """Yields endless data, with batches for all workers together, as workers are to read them.

    `host` is where workers reach this process.
    """
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    _, address = dispatcher.target.split("://")
    reader = service.WorkerServer(
        service.WorkerConfig(dispatcher_address=address, worker_address=f"{host}:%port%")
    )
    port = address.rpartition(":")[2]
    is_open = True
    gate = data.take_while(lambda *batch: tf.numpy_function(lambda: is_open, [], tf.bool))
    found = gate.apply(
        service.distribute(
            service.ShardingPolicy.OFF,  # one reader has all
            f"grpc://{host}:{port}",
            job_name=_JOB,
            compression=None,
        )
    )
    try:
        yield found
    finally:
        is_open = False
        with contextlib.suppress(tf.errors.OpError):  # of the data; `fit` has raised it
            collections.deque(found, maxlen=0)
        reader.stop()
        dispatcher.stop()
