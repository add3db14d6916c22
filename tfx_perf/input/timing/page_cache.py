"""Cold rates: the first epoch, with nothing of the files in RAM."""

import os
import time
from collections.abc import Callable, Sequence

import tensorflow as tf

from tfx_perf.tf_data import datasets


def drop(files: Sequence[str]) -> bool:
    """Asks the kernel to forget the contents of files, so that the next read is from disk.

    Args:
        files: paths of local files.

    Returns:
        Whether it was asked for all of them; False on a system that cannot be asked, and if a
        file is not local or cannot be opened. The kernel keeps pages that another process maps,
        and all pages of a file system that lives in RAM.
    """
    return hasattr(os, "posix_fadvise") and all([_drop(name) for name in files])


def _drop(name: str) -> bool:
    try:
        descriptor = os.open(name.removeprefix("file://"), os.O_RDONLY)
    except OSError:
        return False
    try:
        os.fdatasync(descriptor)  # only pages that are on disk can be dropped
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def cold_rate(build: Callable[[], tf.data.Dataset], *, seconds: float) -> float | None:
    """Returns the examples per second of a dataset's first epoch, building it included.

    The epoch is cut short by the end of the batch in which `seconds` have passed. Call `drop`
    before, or the files may still be in RAM.

    Args:
        build: makes the dataset of one epoch of batches; what it loads into RAM counts.
        seconds: how long to read, beyond the time of `build`.

    Returns:
        The rate; None if there are no examples.
    """
    started = time.perf_counter()
    iterator = iter(build())
    built_seconds = time.perf_counter() - started
    read = _read.get_concrete_function(iterator, tf.TensorSpec([], tf.float64))
    started = time.perf_counter()
    count = int(read(iterator, tf.timestamp() + seconds))
    return count / (built_seconds + time.perf_counter() - started) if count else None


@tf.function
def _read(iterator: tf.data.Iterator, deadline: tf.Tensor) -> tf.Tensor:
    """Returns the number of examples up to the batch that ends after `deadline` (Unix time)."""
    count = tf.constant(0, tf.int64)
    for batch in iterator:
        count += datasets.row_count(batch)
        if tf.timestamp() > deadline:
            break
    return count
