"""Iterators that end in the background: the same data, and still a complete end."""

import os
import threading
import time

import pytest
import tensorflow as tf

from tfx_perf.tf_internals import datasets
from tfx_perf.tf_internals.iterators import unawaited


@tf.function
def in_graph(elements):
    return next(elements)


def ends():
    return [thread for thread in threading.enumerate() if thread.name == "end of an iterator"]


@pytest.fixture(autouse=True)
def ended():
    yield
    for thread in ends():
        thread.join(timeout=90)
        assert not thread.is_alive()


@pytest.fixture
def endless(ended, tmp_path):
    """Makes iterators that are in use, and cannot end before the test does."""
    pipes = []
    file = tmp_path / "lines"
    file.write_text("a line\n")

    def make(take):
        pipes.append(str(tmp_path / f"pipe-{len(pipes)}"))
        os.mkfifo(pipes[-1])
        # Opening a pipe waits until somebody writes to it, here in the thread that reads ahead.
        iterator = iter(unawaited(tf.data.TextLineDataset([str(file), pipes[-1]]).prefetch(1)))
        assert take(iterator) == b"a line"
        time.sleep(0.2)  # until it reads ahead
        return iterator

    yield make
    for pipe in pipes:
        os.close(os.open(pipe, os.O_RDWR))


def test_elements_and_what_is_known_of_them_are_the_same():
    data = tf.data.Dataset.range(10).map(lambda number: {"a": number, "b": -number}).batch(3)
    same = unawaited(data)
    assert same.element_spec == data.element_spec
    assert same.cardinality() == data.cardinality()
    for _ in range(2):
        tf.nest.map_structure(tf.debugging.assert_equal, list(same), list(data))


def test_without_autotune_nothing_is_waited_for_anyway():
    data = datasets.without_autotune(tf.data.Dataset.range(3))
    assert unawaited(data) is data


@pytest.mark.parametrize("take", [next, in_graph])
def test_the_end_is_not_waited_for(take, endless):
    iterator = endless(take)
    del iterator
    assert ends()


def test_ends_do_not_keep_tensorflows_threads(endless):
    iterators = [endless(next) for _ in range(os.cpu_count() + 1)]
    count = len(iterators)
    iterators.clear()
    assert len(ends()) == count
    lines = iter(tf.data.Dataset.from_tensors(b"another line"))
    other = threading.Thread(target=in_graph, args=[lines], daemon=True)
    other.start()
    other.join(timeout=90)
    assert not other.is_alive()


def test_an_iterator_may_be_collected_while_a_function_is_traced():
    kept = [iter(unawaited(tf.data.Dataset.range(3)))]

    @tf.function
    def traced(number):
        kept.clear()
        return number + 1

    assert traced(tf.constant(1)) == 2
    operations = traced.get_concrete_function(tf.constant(1)).graph.get_operations()
    assert not [operation for operation in operations if "Stage" in operation.type]
