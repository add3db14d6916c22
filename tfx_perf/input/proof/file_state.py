"""Whether files are still those that were read before."""

import os
from collections.abc import Iterable
from typing import NamedTuple

import tensorflow as tf

from tfx_perf import cache_key, storage


class FileState(NamedTuple):
    """A file as it is now; whoever writes it anew changes its state.

    Attributes:
        path: of the file.
        size_bytes: on disk.
        modified_nanoseconds: when it was written, since the epoch.
        inode: of a local file: one put in its place has another,
        changed_nanoseconds: and came there at another time, whatever it says of its writing.
    """

    path: str
    size_bytes: int
    modified_nanoseconds: int
    inode: int = 0
    changed_nanoseconds: int = 0


def of_files(paths: Iterable[str]) -> tuple[FileState, ...]:
    """Returns the states of files, in their order.

    Raises:
        tf.errors.OpError, OSError: one of them is gone, or cannot be reached.
    """
    paths = list(paths)
    found = {path: _of_file(path) for path in dict.fromkeys(paths)}
    return tuple(found[path] for path in paths)


def digest(states: Iterable[FileState]) -> str:
    """Returns a short name of what the files were, for a plan."""
    return cache_key.digest(repr([tuple(state) for state in states]).encode())


def _of_file(path: str) -> FileState:
    if storage.is_remote(path):
        found = tf.io.gfile.stat(path)
        return FileState(path, found.length, found.mtime_nsec)
    local = os.stat(path)  # of which TensorFlow hands on the seconds only
    return FileState(
        path, local.st_size, local.st_mtime_ns, local.st_ino, local.st_ctime_ns
    )
