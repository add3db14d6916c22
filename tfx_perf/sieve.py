"""Sieve: what C++ libraries log, told from what else is written to standard error.

It is run by its file, as a process of its own (`quiet.sifted`), so that it starts at once, and that
the last words of a process that crashes get through. It imports nothing but the standard library.
"""

import os
import re
import select

_INPUT, _OTHERS, _LIBRARIES = 0, 1, 2
_CHUNK_BYTES = 2**16
_PATIENCE_SECONDS = 0.1  # for the end of a line; a progress bar has none

# How TensorFlow begins its lines, and how Abseil does. What is fatal is for the user's eyes.
_OF_LIBRARY = re.compile(
    rb"(\d{4}-\d\d-\d\d [\d:.]+: [IWE] |[IWE]\d{4} [\d:.]+ +\d+ )\S+\.(cc|h):\d+\] "
    rb"|WARNING: All log messages before absl::InitializeLog\(\)"
)


def _sift() -> None:
    """Copies standard input: lines of C++ libraries to standard error, others to output."""
    left = b""
    while True:
        may_go = left and not _OF_LIBRARY.match(left)
        if may_go and not select.select([_INPUT], [], [], _PATIENCE_SECONDS)[0]:
            _write(_OTHERS, left)
            left = b""
        chunk = os.read(_INPUT, _CHUNK_BYTES)
        *lines, left = (left + chunk).splitlines(keepends=True) or [b""]
        if not chunk or left.endswith(b"\n"):
            lines, left = [*lines, left], b""
        for line in lines:
            _write(_LIBRARIES if _OF_LIBRARY.match(line) else _OTHERS, line)
        if not chunk:
            return


def _write(stream: int, text: bytes) -> None:
    while text:
        text = text[os.write(stream, text) :]


if __name__ == "__main__":
    _sift()
