"""Files out of the page cache, and the rate of a first epoch."""

import ctypes
import mmap
import os
import time

import pytest
import tensorflow as tf
from record_data import SPARSE_SCHEMA

from tfx_perf.input.timing import page_cache

SIZE_BYTES = 4 * 2**20


@pytest.fixture
def big_file(tmp_path):
    path = tmp_path / "big"
    path.write_bytes(os.urandom(SIZE_BYTES))
    return path


def resident_pages(path):
    """How many pages of a file are in RAM; looking does not read them."""
    libc = ctypes.CDLL(None, use_errno=True)
    pages = -(-SIZE_BYTES // mmap.PAGESIZE)
    with path.open("rb") as file:
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = (
            [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
        )
        address = libc.mmap(None, SIZE_BYTES, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
        libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
        states = ctypes.create_string_buffer(pages)
        failed = libc.mincore(address, SIZE_BYTES, states)
        libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        libc.munmap(address, SIZE_BYTES)
    if failed:
        pytest.skip("the file system does not tell which pages are in RAM")
    return sum(state & 1 for state in states.raw)


def test_dropped_pages_are_gone(big_file):
    if not os.path.exists("/proc/self/mountinfo"):
        pytest.skip("mincore as Linux has it")
    assert resident_pages(big_file) == SIZE_BYTES // mmap.PAGESIZE
    assert page_cache.drop([str(big_file)])
    left = resident_pages(big_file)
    if left == SIZE_BYTES // mmap.PAGESIZE:
        pytest.skip("the file system lives in RAM or keeps its pages")
    assert left == 0
    assert big_file.stat().st_size == SIZE_BYTES


def test_dropping_says_whether_it_could(big_file):
    assert page_cache.drop([f"file://{big_file}"])
    assert not page_cache.drop([str(big_file), "/nowhere/at/all"])
    assert not page_cache.drop(["gs://bucket/file"])


def test_cold_rate_counts_the_building(make_source):
    source = make_source(num_epochs=1)

    def build():
        time.sleep(0.2)
        return source.default()

    assert 0 < page_cache.cold_rate(build, seconds=60) < 230 / 0.2


def test_cold_rate_ends_in_time():
    taken = []

    def rows():
        for number in range(1000):
            taken.append(number)
            yield [number, number]

    def build():
        return tf.data.Dataset.from_generator(
            rows, output_signature=tf.TensorSpec([2], tf.int64)
        )

    assert page_cache.cold_rate(build, seconds=0) > 0
    assert len(taken) < 20
    taken.clear()
    assert page_cache.cold_rate(build, seconds=60) > 0
    assert len(taken) == 1000


def test_cold_rate_counts_examples():
    def build(first):
        # One batch that takes 0.1 s: the rate is then at most ten times its examples.
        def wait():
            time.sleep(0.1)
            yield 0

        numbers = tf.data.Dataset.from_generator(wait, output_signature=tf.TensorSpec([], tf.int64))
        return numbers.map(lambda _: (first, tf.zeros([5])))

    for first in [
        tf.zeros([5, 2]),
        tf.RaggedTensor.from_row_lengths([1, 2, 3], [0, 2, 0, 1, 0]),
        tf.SparseTensor([[0, 0], [3, 7]], [1, 2], [5, 10]),
    ]:
        rate = page_cache.cold_rate(lambda first=first: build(first), seconds=60)
        assert 0 < rate <= 50


def test_cold_rate_of_sparse_features(make_source):
    source = make_source(schema=SPARSE_SCHEMA, num_epochs=1)
    assert page_cache.cold_rate(source.default, seconds=60) > 0


def test_no_examples_have_no_rate():
    nothing = tf.data.Dataset.from_tensors(tf.zeros([3])).take(0)
    assert page_cache.cold_rate(lambda: nothing, seconds=1) is None
