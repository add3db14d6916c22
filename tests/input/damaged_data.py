"""Splits of unusual shape, and damaged ones: `CASES[name].write(folder)`."""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from record_data import RAGGED_SCHEMA, SCHEMA, SPARSE_SCHEMA, example, strings

NON_UTF8 = b"\xff\xfe caf\xe9 \x00\x80"


@dataclasses.dataclass(frozen=True)
class Case:
    """A split, and what to read it with.

    Attributes:
        write: writes the files into a folder.
        schema: of the examples, as text.
        options: of the dataset factory.
        damaged: what of the files' names an error must say; empty for a sound split.
    """

    write: Callable[[pathlib.Path], None]
    schema: str = SCHEMA
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    damaged: tuple[str, ...] = ()


def write_shards(folder: pathlib.Path, sizes: list[int], *, suffix: str = ".gz", **changes) -> None:
    number = 0
    for index, size in enumerate(sizes):
        path = f"{folder}/part-{index:05d}{suffix}"
        with tf.io.TFRecordWriter(path, "GZIP" if suffix == ".gz" else "") as writer:
            for _ in range(size):
                writer.write(example(number, **changes))
                number += 1


def flip_byte(path: pathlib.Path, *, share: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(len(content) * share)] ^= 0xFF
    path.write_bytes(content)


def _truncated(folder: pathlib.Path) -> None:
    write_shards(folder, [60, 60, 60])
    path = folder / "part-00001.gz"
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])  # elsewhere TensorFlow may just end earlier


def _corrupt(folder: pathlib.Path) -> None:
    write_shards(folder, [60, 60, 60], suffix="")
    flip_byte(folder / "part-00001", share=0.5)


def _not_gzip(folder: pathlib.Path) -> None:
    write_shards(folder, [60, 60, 60])
    (folder / "part-00001.gz").write_bytes(b"this is no record file")


def _mixed(folder: pathlib.Path) -> None:
    write_shards(folder, [60, 60])
    write_shards(folder, [60], suffix="")


def _empty_file(folder: pathlib.Path) -> None:
    write_shards(folder, [60, 60])
    (folder / "part-00002.gz").touch()


def _optional_missing(folder: pathlib.Path) -> None:
    with tf.io.TFRecordWriter(f"{folder}/part-00000.gz", "GZIP") as writer:
        for number in range(150):
            words = [b"word%d" % n for n in range(number % 3)]
            writer.write(example(number, words=strings(*words) if words else None))


def _required_missing(folder: pathlib.Path) -> None:
    write_shards(folder, [60, 60])
    with tf.io.TFRecordWriter(f"{folder}/part-00002.gz", "GZIP") as writer:
        writer.write(example(120))
        writer.write(example(121, pair=None))


def _non_utf8(folder: pathlib.Path) -> None:
    write_shards(folder, [60, 60], city=strings(NON_UTF8), words=strings(NON_UTF8, b"plain"))


def _shards(sizes: list[int], suffix: str = ".gz") -> Callable[[pathlib.Path], None]:
    return lambda folder: write_shards(folder, sizes, suffix=suffix)


CASES = {
    "one plain shard": Case(_shards([150], "")),
    "one gzip shard": Case(_shards([150])),
    "300 shards": Case(_shards([1] * 300)),  # tf.data reads at most 256 in turns
    "skewed shards": Case(_shards([400, 3, 1, 1])),
    "an empty shard among others": Case(_shards([60, 0, 60])),
    "a file of no bytes among others": Case(_empty_file),
    "a batch larger than the data": Case(_shards([20, 20]), options={"batch_size": 1000}),
    "zero examples": Case(_shards([0, 0])),
    "missing values, sparse": Case(_optional_missing, schema=SPARSE_SCHEMA),
    "missing values, ragged": Case(_optional_missing, schema=RAGGED_SCHEMA),
    "non-UTF-8 strings": Case(_non_utf8, schema=RAGGED_SCHEMA),
    "truncated gzip": Case(_truncated, damaged=("part-00001.gz",)),
    "corrupt record": Case(_corrupt, damaged=("part-00001",)),
    "no record file": Case(_not_gzip, damaged=("part-00001.gz",)),
    "mixed compression": Case(_mixed, damaged=("part-00001.gz", "part-00000 is not")),
    "a required feature missing": Case(_required_missing, damaged=("part-00002.gz",)),
}
