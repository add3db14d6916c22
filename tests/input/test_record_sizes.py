"""How large records are is found out from a few files in equal distances."""

import pytest
import tensorflow as tf

from tfx_perf.input.building import record_sizes


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


def test_the_mean_is_of_all_and_the_high_one_of_a_run_of_large_ones(write):
    files, given = write([10] * 64 + [100] * 64, [10] * 128)
    found = record_sizes.sampled(files, **given)
    assert found.mean_bytes == (10 * 192 + 100 * 64) / 256
    assert found.high_bytes == 100


def test_the_last_of_many_files_is_looked_at_too(write):
    files, given = write(*[[10]] * 39, [1000])
    assert record_sizes.sampled(files, **given).high_bytes == 1000


def test_records_in_a_file_that_would_not_be_looked_at_are_found(write):
    files, given = write([], [], [7], *[[]] * 30)
    assert record_sizes.sampled(files, **given) == (7, 7)
    (vector,) = record_sizes.beginnings(files, **given, record_bytes=7)
    assert vector.numpy().tolist() == [b"x" * 7]


def test_without_records_there_are_no_sizes(write):
    files, given = write([], [])
    assert record_sizes.sampled(files, **given) is None
    assert not list(record_sizes.beginnings(files, **given, record_bytes=1))


def test_of_large_records_one_is_taken(write):
    files, given = write([50_000] * 3)
    (vector,) = record_sizes.beginnings(files, **given, record_bytes=50_000)
    assert vector.shape == [1]
