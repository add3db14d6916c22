"""The first batch of a training is noted on its way: no step misses it, and none gets it twice."""

import pytest
import tensorflow as tf

from tfx_perf.training.loop.fit_steps import FirstBatch, NotingFirstBatch


class Reading:
    """Steps that do nothing but note what they are given."""

    def __init__(self):
        self.calls = []

    def run(self, iterator, steps):
        self.calls.append([int(next(iterator)) for _ in range(steps)])
        return self.calls[-1][-1]


def shuffled():
    return tf.data.Dataset.range(10).shuffle(10, seed=3, reshuffle_each_iteration=True)


@pytest.mark.parametrize("whole", [1, 2])
def test_steps_get_what_they_would_have_got_without_it(whole):
    first, reading = FirstBatch(), Reading()
    runner, data = NotingFirstBatch(reading, first, whole=whole), shuffled()
    iterator = iter(data)
    assert not first.is_over
    logs = [runner.run(iterator, 4), runner.run(iterator, 6)]
    second_pass = list(data.as_numpy_iterator())
    other = shuffled()
    expected = list(other.as_numpy_iterator())
    assert sum(reading.calls, []) == expected
    assert list(map(len, reading.calls)) == [whole, 4 - whole, 6]
    assert logs == [expected[3], expected[9]]
    assert second_pass == list(other.as_numpy_iterator())  # whose order follows from the passes
    assert (int(first.batch), first.is_over) == (expected[0], True)
    assert first.seconds > 0


def test_data_without_a_batch_end_as_they_would():
    first = FirstBatch()
    with pytest.raises(tf.errors.OutOfRangeError):
        NotingFirstBatch(Reading(), first).run(iter(tf.data.Dataset.range(0)), 1)
    assert (first.batch, first.is_over) == (None, True)


def test_iterators_of_others_are_left_alone():
    first, reading = FirstBatch(), Reading()
    NotingFirstBatch(reading, first).run(iter([5, 6]), 2)
    assert (reading.calls, first.batch) == ([[5, 6]], None)
