"""Data that a coordinator reads, and that its workers take batch by batch.

Workers that read all data would train on some batches twice and on others never. A tf.data service
in the coordinator's process, where Python functions and tables are, gives each batch to the worker
that asks first. Stopping a reader waits with Python's lock held, which a Python function in the
data would wait for. So the data are read to an end first.
"""

import collections
import contextlib
from collections.abc import Iterator

import tensorflow as tf

_JOB = "training"


@contextlib.contextmanager
def served(data: tf.data.Dataset, *, host: str) -> Iterator[tf.data.Dataset]:
    """Yields endless data as workers are to read them, which reach this process at `host`."""
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
