"""Shows how far a pipeline is that another process runs."""

import contextlib
import pathlib
import re
from collections.abc import Iterator

from rich import markup, status
from rich.console import Console

from tfx_perf import periodic

# What `pipelines.progress` writes of a node that is still at work.
_PULSE_LINE = re.compile(r"  \S+ +[\d.]+ s  \.\.\. ")
_POLL_SECONDS = 0.2


class _Follower:
    """Reads the file as it grows and keeps the terminal up to date."""

    def __init__(self, path: pathlib.Path, spinner: status.Status, out: Console):
        self._path = path
        self._spinner = spinner
        self._out = out
        self._position = 0

    def read(self) -> None:
        """Shows what was written since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._position)
            grown = file.read()
        complete = grown.rfind(b"\n") + 1
        self._position += complete
        for line in grown[:complete].decode(errors="replace").splitlines():
            if _PULSE_LINE.match(line):
                self._spinner.update(markup.escape(line))
            else:
                self._out.print(line, markup=False, soft_wrap=True)


@contextlib.contextmanager
def following(path: pathlib.Path) -> Iterator[None]:
    """Shows on standard error, while the context lasts, what `pipelines.progress` writes.

    Args:
        path: where the process that runs the pipeline has it written; need not exist yet.
    """
    out = Console(stderr=True, highlight=False)
    with out.status("  starting") as spinner:
        follower = _Follower(path, spinner, out)
        try:
            with periodic.calling(follower.read, seconds=_POLL_SECONDS):
                yield
        finally:
            follower.read()
