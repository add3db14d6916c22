"""The statuses that were set while a context lasted."""

import contextlib
from collections.abc import Iterator

from tfx_perf.core import console, periodic


@contextlib.contextmanager
def kept() -> Iterator[list[str]]:
    """Yields a list that gets whatever stands there long enough to be read."""
    said: list[str] = []
    with console.status_watched() as last:

        def look() -> None:
            text = last()
            if not said or said[-1] != text:
                said.append(text)

        with periodic.calling(look, seconds=0.001):
            yield said
