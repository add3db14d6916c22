"""What is refused before anything is trained on `fit_data`, and how validation data are divided."""

import numpy as np
import pytest
import tensorflow as tf

from tfx_perf import errors
from tfx_perf.training.parameter_servers.fit_data import FitData

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
        ({"x": np.ones(3)}, "Expected x to be a tf.data.Dataset .*Received: x=ndarray"),
        ({"validation_data": (1, 2)}, "Expected validation_data .*Received: .*=tuple"),
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


def batches_of(**arguments):
    with of(**arguments).served(host="localhost", step=0) as found:
        assert found["validation_steps"] is None
        return [batch.tolist() for batch in found["validation_data"].as_numpy_iterator()]


def test_validation_data_have_one_order_for_all_who_divide_them():
    shuffled = tf.data.Dataset.range(10).shuffle(10).batch(2)
    assert batches_of(validation_data=shuffled) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    endless = DATA.repeat()
    assert batches_of(validation_data=endless, validation_steps=2) == [[0, 1], [2, 3]]


def test_validation_data_that_only_this_process_can_read_are_refused():
    data = DATA.map(lambda x: tf.numpy_function(lambda x: x, [x], tf.int64))
    with pytest.raises(errors.UserError, match="data that call Python functions"):
        batches_of(validation_data=data)


def test_batches_are_taken_from_the_process_that_reads_them():
    random = np.random.default_rng(0)
    data = tf.data.Dataset.range(6).map(
        lambda x: tf.numpy_function(lambda x: x * 10 + 0 * random.integers(9), [x], tf.int64)
    )
    with of(x=data).served(host="localhost", step=8) as found:
        first = [int(each) for each in found["x"].take(6)]
    assert first == [20, 30, 40, 50, 0, 10]
    assert found["steps_per_epoch"] == 6
