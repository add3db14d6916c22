"""A plan's key: the same for the same data and settings, and it says what has changed.

What the parts are digests of, `cache_key` says.
"""

import gzip
import shutil

from record_data import RAGGED_SCHEMA, write_records

from tfx_perf.components.input_tuner import previous
from tfx_perf.config import InputSettings
from tfx_perf.hardware import host

SETTINGS = InputSettings()


def key_of(source, *, settings=SETTINGS, training_digest=""):
    return previous.key_of(source, settings=settings, training_digest=training_digest)


def changed(one, other):
    assert one.keys() == other.keys()
    return {part for part in one if one[part] != other[part]}


def test_the_same_data_elsewhere_have_the_same_key(make_source, split_folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(split_folder, copy)
    assert key_of(make_source()) == key_of(make_source(folder=copy))
    assert all(isinstance(value, str) for value in key_of(make_source()).values())


def test_other_data_have_another_key(make_source, split_folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(split_folder, copy)
    first = sorted(copy.iterdir())[0]
    content = bytearray(first.read_bytes())
    content[-1] ^= 1
    first.write_bytes(content)
    assert changed(key_of(make_source()), key_of(make_source(folder=copy))) == {"data"}
    first.unlink()
    assert changed(key_of(make_source()), key_of(make_source(folder=copy))) == {"data"}


def test_a_change_at_either_end_of_a_large_file_is_seen(make_source, tmp_path):
    original = tmp_path / "original"
    original.mkdir()
    (original / "examples").write_bytes(bytes(300_000))
    keys = [key_of(make_source(folder=original))]
    for position in (0, 299_999):
        folder = tmp_path / str(position)
        folder.mkdir()
        content = bytearray(300_000)
        content[position] = 1
        (folder / "examples").write_bytes(content)
        keys.append(key_of(make_source(folder=folder)))
    assert len({key["data"] for key in keys}) == 3


def test_compression_counts(make_source, split_folder, tmp_path):
    for file in split_folder.iterdir():
        (tmp_path / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
    assert changed(key_of(make_source()), key_of(make_source(folder=tmp_path))) == {"data"}


def test_other_parts_of_the_key_count(make_source, monkeypatch):
    key = key_of(make_source())
    others = {
        "features": key_of(make_source(schema=RAGGED_SCHEMA)),
        "settings": key_of(make_source(), settings=InputSettings(margin=0.5)),
        "training": key_of(make_source(), training_digest="0123"),
    }
    for part, other in others.items():
        assert changed(key, other) == {part}
    assert changed(key, key_of(make_source(label_key=None))) == {"features"}
    total_bytes = host.memory_limit_bytes()
    monkeypatch.setattr(host, "memory_limit_bytes", lambda: 4 * total_bytes)
    assert changed(key, key_of(make_source())) == {"host"}


def test_many_files(make_source, tmp_path):
    write_records(tmp_path, count=200, files=200)
    one = key_of(make_source(folder=tmp_path))
    sorted(tmp_path.iterdir())[100].unlink()
    assert changed(one, key_of(make_source(folder=tmp_path))) == {"data"}
