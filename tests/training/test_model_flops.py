"""FLOPs are those of the whole step, however little of it is traced for them.

Those of several replicas are counted in `test_collectives`.
"""

import keras as keras3
import model_cases
import pytest
import tensorflow as tf
import tf_keras

from tfx_perf.training import model_flops
from tfx_perf.xla import hlo


@pytest.mark.parametrize("keras", [keras3, tf_keras])
def test_optimizer_and_metrics_have_none(keras):
    model = model_cases.dense(keras)
    batch = tf.ones((8, 4)), tf.ones((8, 1))
    whole = hlo.count_flops(hlo.model_step_hlo(model, batch, optimized=False))
    assert model_flops.count_flops(model, batch).per_step == whole > 0


@pytest.mark.parametrize("keras", [keras3, tf_keras])
def test_an_own_step_counts_as_a_whole(keras):
    class Twice(keras.Model):
        def train_step(self, data):
            tf.linalg.matmul(data[0], data[0], transpose_b=True)
            return super().train_step(data)

    model = model_cases.linear(keras, Twice)
    batch = tf.ones((8, 4)), tf.ones((8, 1))
    whole = hlo.count_flops(hlo.model_step_hlo(model, batch, optimized=False))
    assert model_flops.count_flops(model, batch).per_step == whole > 0
