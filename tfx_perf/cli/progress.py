"""Shows how far a pipeline is, from the log that its process writes."""

import contextlib
import pathlib
import re
import time
from collections.abc import Iterator

from rich import console, status

from tfx_perf import periodic

# What TFX's local runner logs for every node.
_NODE_LINE = re.compile(r"Component (\S+) is (running|finished)\.")
_POLL_SECONDS = 0.2


class _Follower:
    """Reads the log as it grows and keeps the terminal up to date."""

    def __init__(self, log_path: pathlib.Path, spinner: status.Status, out: console.Console):
        self._log_path = log_path
        self._spinner = spinner
        self._out = out
        self._position = 0
        self._started: dict[str, float] = {}

    def read(self) -> None:
        """Shows the nodes that began or ended since the last call."""
        if not self._log_path.exists():
            return
        with self._log_path.open("rb") as log:
            log.seek(self._position)
            grown = log.read()
        complete = grown.rfind(b"\n") + 1
        self._position += complete
        for node, event in _NODE_LINE.findall(grown[:complete].decode(errors="replace")):
            if event == "running":
                self._started[node] = time.monotonic()
                self._spinner.update(f"  {node}")
            else:
                seconds = time.monotonic() - self._started.pop(node, time.monotonic())
                self._out.print(f"  [green]✓[/] {node:<24}{seconds:7.1f} s")


@contextlib.contextmanager
def following(log_path: pathlib.Path) -> Iterator[None]:
    """Shows on standard error, while the context lasts, which node of a pipeline runs.

    Args:
        log_path: the log of the process that runs the pipeline; need not exist yet.
    """
    out = console.Console(stderr=True, highlight=False)
    with out.status("  starting") as spinner:
        follower = _Follower(log_path, spinner, out)
        try:
            with periodic.calling(follower.read, seconds=_POLL_SECONDS):
                yield
        finally:
            follower.read()
