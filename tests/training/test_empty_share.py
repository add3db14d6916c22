"""A worker that gets no batch says why, by what TensorFlow and Keras raise then.

Real workers are in `test_same_start`.
"""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python.data.experimental.ops import distribute

from tfx_perf.core import errors
from tfx_perf.distribute import together
from tfx_perf.training.replicas.sync import Sync

_NOTHING = tf.data.Dataset.from_tensor_slices((np.zeros((0, 1)),) * 2).batch(8).repeat()


def of_two(index):
    sync = Sync()
    sync.rank, sync.size = index, 2
    return sync


def fit_in_tf_keras(data):
    model = tf_keras.Sequential([tf_keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(data, steps_per_epoch=1, verbose=0)


def take_of_one_file(_):
    lines = tf.data.TextLineDataset(__file__)
    next(iter(distribute._AutoShardDataset(lines, 2, 0)))


@pytest.mark.parametrize(
    ("take", "received"),
    [
        (lambda data: next(iter(data)), "none for worker 1"),
        (fit_in_tf_keras, "none for worker 1"),
        (take_of_one_file, "fewer files than workers"),
    ],
)
def test_a_worker_without_a_batch_is_told_what_divides_the_rows(take, received):
    with (
        pytest.raises(errors.UserError, match=f"Received: {received}.*AutoShardPolicy.DATA"),
        together.checking_share(of_two(1)),
    ):
        take(_NOTHING)


def test_other_errors_are_as_they_were():
    with pytest.raises(ValueError, match="no such column"), together.checking_share(of_two(1)):
        raise ValueError("no such column")
    with pytest.raises(StopIteration), together.checking_share(Sync()):
        next(iter(_NOTHING))
