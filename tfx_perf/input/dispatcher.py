"""Reaching the dispatcher of a tf.data service."""

import socket
import urllib.parse


def reach(address: str, *, seconds: float) -> None:
    """Connects to the dispatcher and hangs up; TensorFlow itself would wait for it for hours.

    Args:
        address: `grpc://HOST:PORT`.
        seconds: how long to wait for an answer.

    Raises:
        ValueError: `address` is none.
        OSError: nobody answers there.
    """
    parts = urllib.parse.urlsplit(address)
    if parts.scheme != "grpc" or not parts.hostname or not parts.port:
        raise ValueError("expected grpc://HOST:PORT")
    socket.create_connection((parts.hostname, parts.port), seconds).close()
