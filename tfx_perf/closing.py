"""The very end of a process: what it says, below all that libraries have logged, and its haste."""

import atexit
import gc
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


def hurry() -> None:
    """Has the interpreter not look for garbage once more when it ends.

    Among the objects of TFX, TensorFlow and Beam that takes four seconds of a core, also after
    Ctrl-C. A finalizer of an object in a cycle is not called then; Python promises that to none.
    """
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)


def _tell() -> None:
    for line in _LINES:
        print(line, file=sys.stderr, flush=True)
