"""Reaching the dispatcher of a tf.data service."""

import socket

from tfx_perf.settings import values


def reach(address: str, *, seconds: float) -> None:
    """Connects to the dispatcher and hangs up; TensorFlow itself would wait for it for hours.

    Args:
        address: `grpc://HOST:PORT`.
        seconds: how long to wait for an answer.

    Raises:
        ValueError: `address` is none.
        OSError: nobody answers there.
    """
    socket.create_connection(values.grpc_address(address), seconds).close()
