"""An uncompressed copy of a split: its files, and the candidate that reads them."""

import contextlib
import dataclasses
import itertools
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfx_perf.input import limits as limits_lib
from tfx_perf.input import parameters as parameters_lib
from tfx_perf.input import source as source_lib
from tfx_perf.input.candidates import wrapper
from tfx_perf.input.proof import file_state

_LOGGER = logging.getLogger(__name__)
_READER_BUFFER_BYTES = 2**20
_RECORDS_AT_ONCE = 64  # a call per record would cost more than the record


class Copy(wrapper.Wrapper):
    """Reads the copy in the plan's `copy_folder` instead of the files it was made from.

    The copy holds the same records in another order. So it serves shuffled reading of exactly
    the files that were copied; for any other files (the eval split), for unshuffled reading, and
    where the copy is not there or not complete, the inner candidate reads the files themselves:
    that is still better than TFXIO's default, and nobody need know that there is a copy.
    """

    kind = "copy"

    @property
    def description(self) -> str:
        """How the inner candidate works, and what it reads."""
        return f"{self.inner.description} Reads an uncompressed, evenly cut copy of the files."

    def build(
        self, source: source_lib.RecordSource, *, limits: limits_lib.Limits
    ) -> tf.data.Dataset:
        """Returns the inner candidate's dataset, of the copy if it serves."""
        folder = self.parameters.copy_folder
        if folder and self._serves(source):
            pattern = os.path.join(folder, "copy-*")
            source = dataclasses.replace(source, file_patterns=(pattern,))
        return self.inner.build(source, limits=limits)

    def _serves(self, source: source_lib.RecordSource) -> bool:
        folder = self.parameters.copy_folder
        if not folder or not source.options.shuffle:
            return False
        if source.files != self.parameters.copied_files:
            return False
        reason = obstacle(source, self.parameters)
        if reason:
            _LOGGER.warning("The copy in %s is not read: %s.", folder, reason)
        return reason is None


def obstacle(
    source: source_lib.RecordSource, parameters: parameters_lib.Parameters
) -> str | None:
    """Returns why a plan's copy does not hold what the files hold; None if it does."""
    if parameters.copy_folder is None or source.files != parameters.copied_files:
        return "it is of other files"
    if file_state.digest(source.file_states) != parameters.copied_state:
        return "its files have been written anew since it was made"
    found = _shards(parameters.copy_folder)
    if not found:
        return "it is not complete"
    if file_state.digest(file_state.of_files(found)) != parameters.copy_state:
        return "it has been changed since it was made"
    return None


def of_files(files: Sequence[str], *, files_state: str, folder: str) -> dict[str, Any]:
    """Returns the `Parameters` of a copy that is complete.

    Args:
        files: what was copied.
        files_state: `file_state.digest` of them, from before they were read.
        folder: of the copy.
    """
    return {
        "copy_folder": folder,
        "copied_files": tuple(files),
        "copied_state": files_state,
        "copy_state": file_state.digest(file_state.of_files(_shards(folder))),
    }


def shard_paths(folder: str, count: int) -> list[str]:
    """Returns the paths of a copy's files; from every name one can tell how many there are."""
    return [os.path.join(folder, f"copy-{number:05d}-of-{count:05d}") for number in range(count)]


def read_chunks(file: str) -> Iterator[list[bytes]]:
    """Yields the records of a file, some at a time; gzip by its name, as for TFXIO.

    Raises:
        tf.errors.OpError: the file is damaged.
    """
    compression = "GZIP" if file.endswith(".gz") else ""
    records = tf.data.TFRecordDataset(file, compression, buffer_size=_READER_BUFFER_BYTES)
    yield from (chunk.numpy().tolist() for chunk in records.batch(_RECORDS_AT_ONCE))


def write_shards(
    chunks: Iterable[list[bytes]], paths: Sequence[str], *, compression: str = ""
) -> None:
    """Deals records out to new files, so that these are equally long.

    Args:
        chunks: the records, some at a time.
        paths: of the files.
        compression: `GZIP` or the empty string.
    """
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(tf.io.TFRecordWriter(path, compression)) for path in paths]
        records = itertools.chain.from_iterable(chunks)
        for record, writer in zip(records, itertools.cycle(writers), strict=False):
            writer.write(record)


def _shards(folder: str) -> list[str]:
    """Returns the files of a copy; none if one is missing."""
    try:
        found = tf.io.gfile.glob(os.path.join(folder, "copy-*"))
    except tf.errors.OpError:  # a file system that this host does not reach
        return []
    return sorted(found) if sorted(found) == shard_paths(folder, len(found)) else []
