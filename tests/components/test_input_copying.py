"""The copy that Beam writes."""

import collections
import itertools
import os
import zlib

import pytest
import tensorflow as tf

from tfx_perf import errors
from tfx_perf.components.input_tuner import copying

pytestmark = pytest.mark.each_choice

# One worker thread, two threads, two processes.
RUNNERS = {
    "in_memory": [],
    "threads": ["--direct_num_workers=2", "--direct_running_mode=multi_threading"],
    "processes": ["--direct_num_workers=2", "--direct_running_mode=multi_processing"],
}


def write(folder, sizes, *, gzip=(), records_of=lambda number: b"%d" % number):
    """Writes files with so many records each, numbered through."""
    numbers, files = itertools.count(), []
    for index, size in enumerate(sizes):
        zipped = index in gzip
        files.append(f"{folder}/data-{index}" + (".gz" if zipped else ""))
        with tf.io.TFRecordWriter(files[-1], "GZIP" if zipped else "") as writer:
            for _ in range(size):
                writer.write(records_of(next(numbers)))
    return files


def read(folder):
    """The records of each file of a copy."""
    return {
        name: list(tf.data.TFRecordDataset(os.path.join(folder, name)).as_numpy_iterator())
        for name in sorted(os.listdir(folder))
    }


def copy(files, folder, *, shard_count=4, runner="in_memory"):
    return copying.write_copy(
        files, folder=str(folder), shard_count=shard_count, beam_pipeline_args=RUNNERS[runner]
    )


@pytest.mark.slow_where("processes")
@pytest.mark.parametrize("runner", RUNNERS)
def test_holds_the_same_records_in_even_shards(runner, tmp_path):
    # Skewed, one of them empty, some gzip and some not.
    files = write(tmp_path, [1000, 10, 0, 30], gzip=(0, 2))
    size_bytes = copy(files, tmp_path / "copy", runner=runner, shard_count=16)
    found = read(tmp_path / "copy")
    assert list(found) == [f"copy-{number:05d}-of-00016" for number in range(16)]
    everything = collections.Counter(itertools.chain(*found.values()))
    assert everything == collections.Counter(b"%d" % number for number in range(1040))
    assert max(map(len, found.values())) < 1000 / 8
    assert size_bytes == sum(path.stat().st_size for path in (tmp_path / "copy").iterdir())
    assert {path.name for path in tmp_path.iterdir()} == {
        "copy", "data-0.gz", "data-1", "data-2.gz", "data-3",
    }  # fmt: skip


@pytest.mark.parametrize(("files", "shards"), [(1, 5), (7, 3), (3, 3)])
def test_more_and_fewer_shards_than_files(files, shards, tmp_path):
    names = write(tmp_path, [20] * files, gzip=range(files))
    copy(names, tmp_path / "copy", shard_count=shards)
    found = read(tmp_path / "copy")
    assert len(found) == shards
    assert sorted(map(int, itertools.chain(*found.values()))) == list(range(20 * files))
    assert min(map(len, found.values())) >= 20 * files // shards // 2


def cut(file):
    os.truncate(file, os.path.getsize(file) // 2)


def cut_between_records(file):
    """As if gzip had been ended just there."""
    content = tf.io.gfile.GFile(write(os.path.dirname(file), [5])[0], "rb").read()
    zipper = zlib.compressobj(wbits=31)
    with open(file, "wb") as stream:
        stream.write(zipper.compress(content) + zipper.flush(zlib.Z_SYNC_FLUSH))
    assert len(list(tf.data.TFRecordDataset(file, "GZIP"))) == 5  # TensorFlow does not mind


def change(file):
    with open(file, "r+b") as stream:
        stream.seek(1000)
        stream.write(b"damage")


@pytest.mark.parametrize(
    ("damage", "is_gzip"), [(cut, True), (cut_between_records, True), (change, False)]
)
def test_a_damaged_file_is_named_and_nothing_is_left(damage, is_gzip, tmp_path):
    files = write(
        tmp_path, [50, 5000], gzip=(1,) if is_gzip else (),
        records_of=lambda number: os.urandom(20) + b"%d" % number,
    )  # fmt: skip
    damage(files[1])
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "older").touch()
    with pytest.raises(errors.UserError, match=files[1]):
        copy(files, tmp_path / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["copy", *(os.path.basename(name) for name in files)]
    )
    assert (tmp_path / "copy" / "older").exists()  # what was there is kept until the end


def test_gzip_of_several_members_is_whole(tmp_path):
    files = write(tmp_path, [30, 20], gzip=(0, 1))
    with open(files[0], "ab") as first, open(files[1], "rb") as second:
        first.write(second.read())
    copy(files[:1], tmp_path / "copy", shard_count=1)
    (found,) = read(tmp_path / "copy").values()
    assert len(found) == 50


def test_replaces_an_older_copy_and_what_a_broken_run_left(tmp_path):
    files = write(tmp_path, [10])
    for leftover in ("copy", "copy.unfinished"):
        (tmp_path / leftover).mkdir()
        (tmp_path / leftover / "leftover").touch()
    copy(files, tmp_path / "copy", shard_count=2)
    assert list(read(tmp_path / "copy")) == ["copy-00000-of-00002", "copy-00001-of-00002"]
    assert not (tmp_path / "copy.unfinished").exists()


def test_a_part_may_be_copied_twice(tmp_path):
    files = write(tmp_path, [10])
    part = (tuple(files), (str(tmp_path / "one"), str(tmp_path / "two")))
    copying._copy_part(part)
    first = (tmp_path / "one").read_bytes()
    copying._copy_part(part)
    assert (tmp_path / "one").read_bytes() == first
    assert len(list(tmp_path.iterdir())) == 3
