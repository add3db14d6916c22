"""What long work is doing, for whoever waits for it, perhaps in another process.

A file is made known through the environment, which every child inherits. It holds what was said
last; where nobody waits, saying it costs nothing.
"""

import contextlib
import os
import pathlib
import tempfile
import threading
from collections.abc import Callable, Iterator

_VARIABLE = "TFX_PERF_ACTIVITY"


@contextlib.contextmanager
def watched() -> Iterator[Callable[[], str]]:
    """Keeps what this process and its children say while the context lasts.

    Yields:
        A function that returns what was said last; empty if nothing was.
    """
    before = os.environ.get(_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="tfx-perf-activity-") as folder:
        path = pathlib.Path(folder, "activity")
        path.touch()
        os.environ[_VARIABLE] = str(path)
        try:
            yield lambda: path.read_text(encoding="utf-8")
        finally:
            if before is None:
                del os.environ[_VARIABLE]
            else:
                os.environ[_VARIABLE] = before


def is_watched() -> bool:
    """Returns whether anybody waits."""
    return _VARIABLE in os.environ


def say(what: str) -> None:
    """Says what is being done from now on; never raises.

    Args:
        what: a few words, e.g. `measuring columns`; empty to take back what was said.
    """
    path = os.environ.get(_VARIABLE)
    if path is None:
        return
    draft = f"{path}.{os.getpid()}-{threading.get_ident()}"
    with contextlib.suppress(OSError):  # whoever waited is gone
        pathlib.Path(draft).write_text(" ".join(what.split()), encoding="utf-8")
        os.replace(draft, path)
