"""What is refused before anything is trained on `fit_data`, and how served data are read."""

import time

import numpy as np
import pytest
import tensorflow as tf

from tfx_perf.core import errors
from tfx_perf.distribute.parameter_server.fit_data import FitData

DATA = tf.data.Dataset.range(10).batch(2)
ARGUMENTS = {
    "x": DATA, "steps_per_epoch": None, "validation_data": None, "validation_steps": None,
    "class_weight": None,
}  # fmt: skip


def of(**arguments):
    return FitData.of({**ARGUMENTS, **arguments})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"x": np.ones(3)}, "Expected x to be a tf.data.Dataset .*Received: x=ndarray.*slices"),
        ({"x": DATA.take(0)}, "Expected training data. Received: x of 0 batches"),
        ({"x": DATA.repeat()}, "Expected steps_per_epoch.*Received: steps_per_epoch=None"),
        ({"x": lambda context: DATA}, "Expected steps_per_epoch.* x=function"),
        ({"class_weight": {0: 2.0}}, "Expected no class_weight.*Received: .*sample weights"),
        ({"validation_data": DATA.repeat()}, "Expected validation_steps"),
    ],
)
def test_data_on_which_an_epoch_would_fail_are_refused(arguments, words):
    with pytest.raises(errors.UserError, match=words) as caught:
        of(**arguments)
    assert "\n" not in str(caught.value)


def test_the_length_of_an_epoch_is_the_datas_where_nobody_says_another():
    assert of().length == 5
    assert of(x=DATA.repeat(), steps_per_epoch=7).length == 7


def test_batches_are_taken_from_the_process_that_reads_them():
    data = tf.data.Dataset.range(6).map(
        lambda x: tf.numpy_function(lambda x: x * 10, [x], tf.int64)
    )
    with of(x=data).served(host="localhost", step=8) as found:
        first = [int(each) for each in found["x"].take(6)]
    assert first == [20, 30, 40, 50, 0, 10]
    assert found["steps_per_epoch"] == 6


def test_what_calls_python_functions_ahead_is_ended():
    calls = []

    def slow(x):
        calls.append(x)
        time.sleep(0.01)
        return x

    data = DATA.map(lambda x: tf.numpy_function(slow, [x], tf.int64)).repeat(100).prefetch(500)
    with of(x=data).served(host="localhost", step=0) as found:
        next(iter(found["x"]))
    assert len(calls) < 500
