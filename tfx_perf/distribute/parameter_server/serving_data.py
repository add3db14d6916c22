"""Data that a coordinator reads, and that its workers take batch by batch.

Each worker could read all data for itself, but then two workers would train on each batch twice,
and on some in no epoch: nobody tells a worker which of them it is. From a tf.data service in the
coordinator's own process each batch goes to one worker, whichever asks first, and what calls Python
functions or looks up tables is where these are.

A reader that is stopped is waited for with Python's lock held, which a Python function in the data
would wait for. So the data are read to an end first, with which all that reads ahead of it ends.
"""

import collections
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
