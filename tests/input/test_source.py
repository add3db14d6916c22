"""What is known of a source stays known where its options are replaced, and is right there."""

import pytest
import tensorflow as tf
from record_data import PLACED_SCHEMA, RAGGED_SCHEMA, SCHEMA, SPARSE_SCHEMA

from tfx_perf.input import candidates, equivalence
from tfx_perf.input.candidates import limits
from tfx_perf.input.candidates import source as source_lib

pytestmark = pytest.mark.each_choice

SCHEMAS = {
    "dense": SCHEMA,
    "lists": SPARSE_SCHEMA,
    "ragged": RAGGED_SCHEMA,
    "placed": PLACED_SCHEMA,
}


@pytest.mark.parametrize("options", [
    {"num_epochs": 1},
    {"num_epochs": 1, "batch_size": 7},
    {"num_epochs": None, "batch_size": 7},
    {"label_key": None},
    {"num_epochs": 1, "label_key": "number"},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("num_epochs", [None, 1])
@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_spec_under_other_options_is_the_defaults(schema, num_epochs, options, make_source):
    source = make_source(schema=SCHEMAS[schema], num_epochs=num_epochs)
    assert source.element_spec  # it is known before
    replaced = source.replace_options(**options)
    assert replaced.element_spec == replaced.default().element_spec


def test_files_are_looked_at_once(make_source, split_folder):
    source = make_source(folder=split_folder)
    known = source.files, source.record_bytes, source.file_states
    replaced = source.replace_options(batch_size=3)
    assert all(a is b for a, b in zip(
        known, (replaced.files, replaced.record_bytes, replaced.file_states), strict=True,
    ))  # fmt: skip


def test_the_order_of_the_files_is_part_of_what_is_read(make_source, monkeypatch):
    monkeypatch.setattr(source_lib, "_files_in_turns", lambda calls: calls)  # as with many CPUs
    source = make_source(num_epochs=1, shuffle=False)
    in_turns = [source.replace_options(reader_num_threads=calls) for calls in (1, 2)]
    candidate = candidates.make("columns")
    digests = [
        equivalence.prefix(
            candidate.build(each, limits=limits.Limits(memory_bytes=2**30))
        ).fingerprints.tolist()
        for each in in_turns
    ]
    assert digests[0] != digests[1]
    assert sorted(digests[0]) == sorted(digests[1])


@pytest.fixture(params=["", "GZIP"])
def write(request, tmp_path):
    """Writes files with records of given sizes; returns their names, sorted, and how they are."""

    def files(*sizes_of_each):
        names = []
        for number, sizes in enumerate(sizes_of_each):
            names.append(str(tmp_path / f"part-{number:03d}"))
            with tf.io.TFRecordWriter(names[-1], request.param) as writer:
                for size in sizes:
                    writer.write(b"x" * size)
        return names, {"compression": request.param}

    return files


def test_the_mean_is_of_all(write):
    files, given = write([10] * 64 + [100] * 64, [10] * 128)
    found = source_lib.mean_record_bytes(files, **given)
    assert found == (10 * 192 + 100 * 64) / 256


def test_the_last_of_many_files_is_looked_at_too(write):
    files, given = write(*[[10]] * 39, [1000])
    assert source_lib.mean_record_bytes(files, **given) > 100


def test_records_in_a_file_that_would_not_be_looked_at_are_found(write):
    files, given = write([], [], [7], *[[]] * 30)
    assert source_lib.mean_record_bytes(files, **given) == 7
    (vector,) = source_lib.beginnings(files, **given, record_bytes=7)
    assert vector.numpy().tolist() == [b"x" * 7]


def test_without_records_there_are_no_sizes(write):
    files, given = write([], [])
    assert source_lib.mean_record_bytes(files, **given) is None
    assert not list(source_lib.beginnings(files, **given, record_bytes=1))


def test_of_large_records_one_is_taken(write):
    files, given = write([50_000] * 3)
    (vector,) = source_lib.beginnings(files, **given, record_bytes=50_000)
    assert vector.shape == [1]
