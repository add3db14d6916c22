"""Writes the uncompressed copy of a split with Apache Beam."""

import gzip
import os
import uuid
from collections.abc import Iterator, Sequence

import apache_beam as beam
import tensorflow as tf

from tfx_perf import errors
from tfx_perf.input.candidates import copy

_Part = tuple[tuple[str, ...], tuple[str, ...]]  # files, and the paths to copy them to
_RECORD_OVERHEAD_BYTES = 16  # a TFRecord's length and its two checksums


def write_copy(
    files: Sequence[str],
    *,
    folder: str,
    shard_count: int,
    beam_pipeline_args: Sequence[str],
) -> int:
    """Copies the records of files into uncompressed files of about the same size.

    What goes through Beam are the names of files; each worker streams its part of them. Were it
    the records, runners that keep what they shuffle in memory (the direct runner) could not
    copy data larger than that, and data that fits is not worth a copy. The copy is written
    aside and renamed when it is complete; an older one is replaced.

    Args:
        files: record files, those named `*.gz` compressed.
        folder: where the copy is to be; on a file system that all workers reach.
        shard_count: how many files the copy is to have.
        beam_pipeline_args: as TFX passes them to executors; the runner is among them.

    Returns:
        Size of the copy in bytes.

    Raises:
        UserError: a file is damaged; nothing is left behind. Runners with workers in other
            processes may wrap it.
    """
    aside = f"{folder.rstrip('/')}.unfinished"
    _delete(aside)  # of a run that was ended
    tf.io.gfile.makedirs(aside)
    shards = copy.shard_paths(aside, shard_count)
    try:
        with beam.Pipeline(argv=list(beam_pipeline_args)) as pipeline:
            _ = (
                pipeline
                | "Parts" >> beam.Create(_divide(files, shards))
                | "Spread" >> beam.Reshuffle()
                | "Copy" >> beam.Map(_copy_part)
            )
        for name in tf.io.gfile.listdir(aside):
            if os.path.join(aside, name) not in shards:  # of an attempt that Beam repeated
                tf.io.gfile.remove(os.path.join(aside, name))
        size_bytes = sum(tf.io.gfile.stat(shard).length for shard in shards)
        _delete(folder)
        tf.io.gfile.rename(aside, folder)
    except BaseException:
        _delete(aside)
        raise
    return size_bytes


def _divide(files: Sequence[str], shards: Sequence[str]) -> list[_Part]:
    """Cuts the work into parts of about the same size, each with files and shards of its own.

    A file is read by one worker only: gzip cannot be entered in the middle.
    """
    sizes = {name: tf.io.gfile.stat(name).length for name in files}
    parts: list[tuple[list[str], list[str]]]
    parts = [([], []) for _ in range(min(len(sizes), len(shards)))]
    loads = [0] * len(parts)
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
        lightest = loads.index(min(loads))
        parts[lightest][0].append(name)
        loads[lightest] += sizes[name]
    for number, shard in enumerate(shards):
        # First one for each part, then one more where the shards would be the largest.
        fullest = number if number < len(parts) else max(
            range(len(parts)), key=lambda index: loads[index] / len(parts[index][1])
        )
        parts[fullest][1].append(shard)
    return [(tuple(names), tuple(own)) for names, own in parts]


def _copy_part(part: _Part) -> None:
    """Writes the records of some files to some shards; may be repeated, also at the same time."""
    files, shards = part
    attempt = f".{uuid.uuid4().hex}"
    unfinished = [shard + attempt for shard in shards]
    copy.write_shards((chunk for name in files for chunk in _read(name)), unfinished)
    for source, target in zip(unfinished, shards, strict=True):
        tf.io.gfile.rename(source, target, overwrite=True)


def _read(name: str) -> Iterator[list[bytes]]:
    """Yields a file's records; if it is damaged the error names it."""
    size_bytes = 0
    try:
        for chunk in copy.read_chunks(name):
            yield chunk
            size_bytes += sum(len(record) + _RECORD_OVERHEAD_BYTES for record in chunk)
        if name.endswith(".gz"):
            _check_end(name, size_bytes)
    except (tf.errors.DataLossError, EOFError) as error:
        raise errors.UserError(
            f"Expected a sound record file. Received: file={name} "
            f"({str(error).splitlines()[0]}). Write that file again."
        ) from error


def _check_end(name: str, size_bytes: int) -> None:
    """Checks that a gzip file does not end too early, after so many uncompressed bytes.

    TensorFlow takes one that was cut between two records for a whole one.

    Raises:
        EOFError: it was cut.
    """
    with tf.io.gfile.GFile(name, "rb") as file:
        file.seek(max(0, file.size() - 4))
        if int.from_bytes(file.read(4), "little") == size_bytes % 2**32:  # RFC 1952, ISIZE
            return
        file.seek(0)
        with gzip.GzipFile(fileobj=file) as content:  # it may also have several members
            while content.read(2**20):
                pass


def _delete(folder: str) -> None:
    if tf.io.gfile.exists(folder):
        tf.io.gfile.rmtree(folder)
