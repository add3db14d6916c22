"""What others make of a checkpoint; real ones are in `test_interrupted_workers`."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from tfx_perf.training.recovery.training_state import Writers, redistributed

_SUM, _MEAN = tf.VariableAggregation.SUM, tf.VariableAggregation.MEAN
_FIRST, _NONE = tf.VariableAggregation.ONLY_FIRST_REPLICA, tf.VariableAggregation.NONE


@pytest.mark.parametrize(
    ("aggregation", "count", "expected"),
    [
        (_SUM, 3, [[6.0, 12.0], [0.0, 0.0], [0.0, 0.0]]),
        (_SUM, 1, [[6.0, 12.0]]),
        (_MEAN, 2, [[3.0, 6.0], [3.0, 6.0]]),
        (_FIRST, 3, [[2.0, 4.0], [4.0, 8.0], [2.0, 4.0]]),
        (_NONE, 1, [[2.0, 4.0]]),
    ],
)
def test_what_each_replica_begins_with(aggregation, count, expected):
    values = [np.array([2, 4], np.float32), np.array([4, 8], np.float32)]
    found = [redistributed(values, aggregation, replica=replica) for replica in range(count)]
    np.testing.assert_array_equal(found, expected)
    assert {each.dtype for each in found} == {np.dtype("float32")}


def test_who_has_written_what():
    folder = pathlib.Path("checkpoint")
    three = Writers(workers=3, replicas=3)
    assert [three.part(folder, worker).name for worker in range(4)] == [
        "worker-0", "worker-1", "worker-2", "worker-0"
    ]  # fmt: skip
    assert Writers().part(folder, 1) == folder
    words = [str(three), str(Writers(replicas=2)), str(Writers())]
    assert words == ["3 workers", "2 replicas", "one device"]
