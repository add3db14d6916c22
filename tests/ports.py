"""Ports for the servers that tests start."""

import socket


def free_port() -> int:
    with socket.create_server(("localhost", 0)) as probe:
        return probe.getsockname()[1]
