"""What is said at the very end of a process, below all that libraries have logged until then."""

import atexit
import sys

_LINES: list[str] = []


def say(*lines: str) -> None:
    """Writes lines to standard error when the interpreter ends, after those of earlier calls.

    Args:
        *lines: without their newlines.
    """
    atexit.unregister(_tell)
    atexit.register(_tell)
    _LINES.extend(lines)


def _tell() -> None:
    for line in _LINES:
        print(line, file=sys.stderr, flush=True)
