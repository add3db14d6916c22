"""Network namespaces for workers, on links whose bandwidth is limited."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator

import click

_BRIDGE, _PREFIX = "tfxperf", "tfxperf-worker"
_SUBNET = "10.213.77"


@contextlib.contextmanager
def links(count: int, *, bits_per_second: int) -> Iterator[list[tuple[str, str]]]:
    """Makes a namespace for each worker; yields their names and addresses.

    Linux only, as root, with iproute2. No latency is added, because only some kernels have netem,
    which could do it.

    Args:
        count: how many.
        bits_per_second: of each link, in each direction.

    Raises:
        ClickException: not root, a command is missing, or one fails.
    """
    if os.geteuid() or not (shutil.which("ip") and shutil.which("tc")):
        raise click.ClickException(
            "Expected root, and the commands ip and tc, to limit links. Received: one is missing."
        )
    shaped = f"tbf rate {bits_per_second}bit burst 64kb latency 200ms".split()
    with contextlib.ExitStack() as undo:
        _run("ip", "link", "add", _BRIDGE, "type", "bridge")
        undo.callback(_run, "ip", "link", "del", _BRIDGE)
        _run("ip", "link", "set", _BRIDGE, "up")
        found = []
        for index in range(count):
            name, here, address = f"{_PREFIX}-{index}", f"tfxp{index}", f"{_SUBNET}.{index + 1}"
            _run("ip", "netns", "add", name)
            undo.callback(_run, "ip", "netns", "del", name)
            _run("ip", "link", "add", here, "type", "veth", "peer", "name", "eth0", "netns", name)
            undo.callback(_run, "ip", "link", "del", here)  # deleting a namespace removes it late
            _run("ip", "link", "set", here, "master", _BRIDGE, "up")
            inside = ("ip", "netns", "exec", name)
            _run(*inside, "ip", "address", "add", f"{address}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                _run(*inside, "ip", "link", "set", device, "up")
            _run("tc", "qdisc", "add", "dev", here, "root", *shaped)
            _run(*inside, "tc", "qdisc", "add", "dev", "eth0", "root", *shaped)
            found.append((name, address))
        yield found


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise click.ClickException(f"{' '.join(command)}: {done.stderr.strip()}")
