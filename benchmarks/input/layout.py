"""The workloads' records on disk, with the shards and the compression that a cell asks for.

The records of a workload are encoded and framed once. Every other layout is made of byte ranges
of that file, because a file of framed records may be cut between any two of them.
"""

import concurrent.futures
import contextlib
import gzip
import pathlib
import shutil
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from benchmarks.input import encoding, results
from benchmarks.input.workloads import workload as workload_lib
from tfx_perf.hardware import host

SPLIT = "train"

_GZIP_LEVEL = 6  # zlib's default, and that of TFX's writers
_FRAME_BYTES = 16  # length (8), its checksum (4), checksum of the record (4)


class Layouts:
    """The record files of one workload below a folder, written when first asked for."""

    def __init__(
        self, workload: workload_lib.Workload, folder: pathlib.Path, *, max_rows: int | None = None
    ) -> None:
        """Names the folder.

        Args:
            workload: whose rows to write.
            folder: where the files of all workloads are kept.
            max_rows: fewer rows than the workload has, for a quick run.
        """
        self._workload = workload
        self._max_rows = max_rows
        rows = "" if max_rows is None else f"-{max_rows}"
        self._folder = folder / f"{workload.name}{rows}"

    def schema(self) -> schema_pb2.Schema:
        """Returns the schema of the records."""
        text = (self._base() / "schema.pbtxt").read_text(encoding="utf-8")
        return text_format.Parse(text, schema_pb2.Schema())

    def row_count(self) -> int:
        """Returns the number of records."""
        return len(self._offsets()) - 1

    def total_bytes(self) -> int:
        """Returns the size of the uncompressed records."""
        return int(self._offsets()[-1]) - _FRAME_BYTES * self.row_count()

    def examples_uri(self, *, shards: int, compression: str) -> str:
        """Returns a folder laid out as an `Examples` artifact with the one split `SPLIT`.

        Args:
            shards: number of files over which the records are spread evenly.
            compression: `gzip` or `plain`.
        """
        folder = self._folder / f"{compression}-{shards}"
        if not folder.exists():
            with _complete(folder) as draft:
                split = draft / f"Split-{SPLIT}"
                split.mkdir()
                self._write_shards(split, shards, compression)
        return str(folder)

    def _offsets(self) -> np.ndarray:
        return np.load(self._base() / "offsets.npy", mmap_mode="r")

    def _base(self) -> pathlib.Path:
        """Returns the folder with all records in one file, their offsets and schema."""
        folder = self._folder / "records"
        if not folder.exists():
            with _complete(folder) as draft:
                self._write_base(draft)
        return folder

    def _write_base(self, folder: pathlib.Path) -> None:
        generator = np.random.default_rng(workload_lib.SEED)
        lengths: list[int] = []
        with tf.io.TFRecordWriter(f"{folder}/records") as writer:
            for columns in self._workload.tables():
                records = encoding.encode(columns)
                # The original rows may be sorted; TFX's ExampleGen shuffles them, too.
                order = generator.permutation(len(records))
                wanted = len(order) if self._max_rows is None else self._max_rows - len(lengths)
                for index in order[:wanted]:
                    writer.write(records[index])
                    lengths.append(len(records[index]) + _FRAME_BYTES)
                if len(lengths) == self._max_rows:
                    break
        np.save(folder / "offsets.npy", np.concatenate([[0], np.cumsum(lengths)]))
        schema = encoding.schema_of(columns, ragged=self._workload.ragged)
        (folder / "schema.pbtxt").write_text(text_format.MessageToString(schema), encoding="utf-8")

    def _write_shards(self, folder: pathlib.Path, shards: int, compression: str) -> None:
        base, offsets = self._base() / "records", self._offsets()
        suffix = ".gz" if compression == results.GZIP else ""
        cuts = offsets[np.linspace(0, self.row_count(), shards + 1).round().astype(int)]

        def write(index: int) -> None:
            path = folder / f"examples-{index:05d}-of-{shards:05d}{suffix}"
            with base.open("rb") as source, _open(path, compression) as target:
                source.seek(cuts[index])
                _copy(source, target, int(cuts[index + 1] - cuts[index]))

        if shards == 1 and compression == results.PLAIN:
            (folder / "examples-00000-of-00001").hardlink_to(base)
            return
        # zlib releases the interpreter lock.
        with concurrent.futures.ThreadPoolExecutor(host.cpu_count()) as pool:
            list(pool.map(write, range(shards)))


@contextlib.contextmanager
def _complete(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a folder to fill, which gets its final name only when it is complete."""
    draft = folder.with_name(f"{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    yield draft
    draft.rename(folder)


def _open(path: pathlib.Path, compression: str) -> BinaryIO:
    if compression == results.PLAIN:
        return path.open("wb")
    return gzip.GzipFile(path, "wb", compresslevel=_GZIP_LEVEL, mtime=0)


def _copy(source: BinaryIO, target: BinaryIO, count: int) -> None:
    while count:
        block = source.read(min(count, 2**20))
        target.write(block)
        count -= len(block)
