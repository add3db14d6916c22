"""The files that AutoGraph writes of the code that it has converted.

TensorFlow removes them when the interpreter ends, which a fork does not live to see.
"""

import contextlib
import os
import sys
from collections.abc import Iterator

PREFIX = "__autograph_generated_file"
"""Of their names, and of the modules that they are imported as."""


@contextlib.contextmanager
def removed_afterwards() -> Iterator[None]:
    """Removes the files of what was converted while the context lasted."""
    before = _modules()
    try:
        yield
    finally:
        for name in _modules() - before:
            with contextlib.suppress(OSError):  # gone already
                os.remove(str(sys.modules[name].__file__))


def _modules() -> set[str]:
    return {name for name in list(sys.modules) if name.startswith(PREFIX)}
