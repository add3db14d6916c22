"""Iterators whose end nobody waits for: the same data, and an end all the same."""

import threading
import time

import pytest
import tensorflow as tf

from tfx_perf import datasets
from tfx_perf.unawaited import unawaited

NAME = "end of an iterator"


def slow():
    """An endless dataset that reads ahead, in an operation that nothing can interrupt."""
    side = tf.random.stateless_normal([2500, 2500], seed=(1, 2))

    def wait(number):
        return tf.cast(number, tf.float32) + tf.linalg.trace(side @ side) * 0.0

    return tf.data.Dataset.range(10**9).map(wait).prefetch(1)


def used(dataset):
    """Returns an iterator that is working on its next element, and how long one takes."""
    iterator = iter(dataset)
    next(iterator)
    start = time.perf_counter()
    next(iterator)
    return iterator, time.perf_counter() - start


def ends():
    return [thread for thread in threading.enumerate() if thread.name == NAME]


@pytest.fixture(autouse=True)
def ended():
    yield
    for thread in ends():
        thread.join(timeout=90)
        assert not thread.is_alive()


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


@pytest.mark.parametrize("in_graph", [False, True])
def test_the_end_is_not_waited_for(in_graph):
    seconds = {}
    for wrapped in (False, True):
        iterator, element_seconds = used(unawaited(slow()) if wrapped else slow())
        if in_graph:
            tf.function(lambda elements: next(elements))(iterator)  # noqa: PLW0108
        start = time.perf_counter()
        del iterator
        seconds[wrapped] = (time.perf_counter() - start) / element_seconds
    assert ends()
    assert seconds[True] < seconds[False] / 3


def test_an_iterator_may_be_collected_while_a_function_is_traced():
    kept = [iter(unawaited(tf.data.Dataset.range(3)))]

    @tf.function
    def traced(number):
        kept.clear()
        return number + 1

    assert traced(tf.constant(1)) == 2
    operations = traced.get_concrete_function(tf.constant(1)).graph.get_operations()
    assert not [operation for operation in operations if "Stage" in operation.type]
