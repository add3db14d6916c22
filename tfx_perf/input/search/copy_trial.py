"""Whether an uncompressed copy of the split would pay for itself, tried on a sample."""

import dataclasses
import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable

import tensorflow as tf

from tfx_perf import formatting, records, statistics
from tfx_perf.input import candidate
from tfx_perf.input import limits as limits_lib
from tfx_perf.input import source as source_lib
from tfx_perf.input.candidates import copy
from tfx_perf.input.timing import measure

_READING_SHARE = 0.1  # of the time; to write that again as gzip may take four times as long
_SAMPLE_BYTES = 64 * 2**20
_SAMPLE_FILES = 16  # no candidate reads more at once
_MIN_SHARDS = 16
_SHARD_BYTES = 256 * 2**20


class CopyTrial(records.Record):
    """What a copy would cost and bring, extrapolated from a sample.

    The reading rates are those of the pipeline alone, from the page cache. So the copy saves no
    time where training does not wait for its input, and it may save less than said where
    the disk is slow and the copy does not fit into RAM.

    Attributes:
        ratio: speed with the copy over speed with the files.
        sample_share: of the files' bytes that was tried.
        copy_bytes: size of the whole copy.
        copy_seconds: time to write it, by one process.
        shard_count: files to cut it into.
        payback_epochs: epochs after which the time saved makes up for `copy_seconds`; None if it
            never does, or if the interval of `ratio` does not prove it.
    """

    ratio: statistics.Interval
    sample_share: float
    copy_bytes: int
    copy_seconds: float
    shard_count: int
    payback_epochs: float | None

    @property
    def verdict(self) -> str:
        """What was found, in a sentence with the numbers."""
        figures = (
            f"An uncompressed copy would take {formatting.format_bytes(self.copy_bytes)} and "
            f"{formatting.format_seconds(self.copy_seconds)} to write, and reading it would be "
            f"{self.ratio.value:.3g} times as fast ({self.ratio.spread}, tried on "
            f"{self.sample_share:.0%} of the data)"
        )
        if self.payback_epochs is None:
            return f"{figures}: it would not pay for itself."
        return (
            f"{figures}: it would pay for itself after {self.payback_epochs:.3g} epochs. "
            "InputTuner writes it if input.materialize is set and training is longer than that."
        )

    def worthwhile(self, epochs: float | None) -> bool:
        """Returns whether the copy pays for itself in that many epochs; None is unknown: no."""
        return epochs is not None and self.payback_epochs is not None and (
            self.payback_epochs < epochs
        )


@dataclasses.dataclass(frozen=True)
class _Sample:
    files: tuple[str, ...]
    copies: tuple[str, ...]
    example_count: int
    copy_seconds: float


def try_copy(
    source: source_lib.RecordSource,
    *,
    make_inner: Callable[[], candidate.Candidate],
    limits: limits_lib.Limits,
    seconds: float,
    folder: str | None = None,
) -> CopyTrial:
    """Copies a sample of the records and measures what reading the copy brings.

    Args:
        source: the files; `num_epochs` and `shuffle` are replaced.
        make_inner: makes the candidate that would read the copy.
        limits: for that candidate.
        seconds: time for all of it; below some five seconds nothing can be proven.
        folder: local folder for the sample, on the disk that would hold the copy; None for the
            system's temporary folder. What is written is deleted again.

    Raises:
        NotApplicable: there are no examples, or the candidate does not serve.
        tf.errors.OpError: a file is damaged.
    """
    started = time.monotonic()
    scratch = tempfile.mkdtemp(prefix="tfx_perf_copy_", dir=folder)
    try:
        sample = _sample(source, scratch, deadline_seconds=started + _READING_SHARE * seconds)
        endless = source.replace_options(num_epochs=None, shuffle=True)
        samples = measure.measure(
            {
                name: measure.TimedDataset(
                    make_inner().build(
                        dataclasses.replace(endless, file_patterns=files), limits=limits
                    )
                )
                for name, files in (("files", sample.files), ("copies", sample.copies))
            },
            batch_size=source.options.batch_size,
            deadline_seconds=started + seconds,
        )
        share = _size_bytes(sample.files) / source.total_bytes
        copy_bytes = math.ceil(_size_bytes(sample.copies) / share)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    rates = measure.rates(samples["files"])
    ratio = statistics.ratio_interval(measure.rates(samples["copies"]), rates)
    copy_seconds = sample.copy_seconds / share
    payback_epochs = None
    if len(rates) >= measure.MIN_ROUNDS and ratio.surely_above(1):
        example_count = sample.example_count / share
        epoch_seconds = example_count / statistics.median_interval(rates).value
        payback_epochs = copy_seconds / (epoch_seconds * (1 - 1 / ratio.value))
    return CopyTrial(
        ratio=ratio,
        sample_share=share,
        copy_bytes=copy_bytes,
        copy_seconds=copy_seconds,
        shard_count=max(_MIN_SHARDS, math.ceil(copy_bytes / _SHARD_BYTES)),
        payback_epochs=payback_epochs,
    )


def _sample(
    source: source_lib.RecordSource, folder: str, *, deadline_seconds: float
) -> _Sample:
    """Copies whole files if that makes enough of them, else the first records.

    Of records, files of the same kind and as many as can be read at once are made, too, so that
    reading them is as parallel as reading all the files.
    """
    started = time.perf_counter()
    found, whole_files, whole_count = _read(source.files, deadline_seconds=deadline_seconds)
    if not found:
        raise candidate.NotApplicable("there are no examples")
    read_seconds, read_count = time.perf_counter() - started, len(found)
    enough = min(len(source.files), _SAMPLE_FILES)
    if len(whole_files) >= enough:
        files = whole_files
        del found[whole_count:]
    else:
        suffix = ".gz" if source.compression else ""
        files = [os.path.join(folder, f"file-{number}{suffix}") for number in range(enough)]
        copy.write_shards([found], files, compression=source.compression)
    started = time.perf_counter()
    copies = copy.shard_paths(folder, _MIN_SHARDS)
    copy.write_shards([found], copies)
    write_seconds = time.perf_counter() - started
    return _Sample(
        files=tuple(files),
        copies=tuple(copies),
        example_count=len(found),
        copy_seconds=read_seconds * len(found) / read_count + write_seconds,
    )


def _read(
    files: tuple[str, ...], *, deadline_seconds: float
) -> tuple[list[bytes], list[str], int]:
    """Returns the first records, the files read to their end, and how many records these hold."""
    found: list[bytes] = []
    whole_files: list[str] = []
    whole_count, size_bytes = 0, 0
    for name in files:
        for chunk in copy.read_chunks(name):
            found += chunk
            size_bytes += sum(map(len, chunk))
            if size_bytes > _SAMPLE_BYTES or time.monotonic() > deadline_seconds:
                return found, whole_files, whole_count
        whole_files.append(name)
        whole_count = len(found)
    return found, whole_files, whole_count


def _size_bytes(files: tuple[str, ...]) -> int:
    return sum(tf.io.gfile.stat(name).length for name in files)
