"""Steps that are compiled together: which steps cannot be, and what happens to them."""

import model_cases
import numeric_models
import numpy as np
import pydantic
import pytest
import tensorflow as tf
from model_cases import captured, compare
from numeric_models import ROWS, STEPS

from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.step import compiled_call
from tfx_perf.training.step.compiled_call import Preparation

pytestmark = pytest.mark.each_choice

PLAN = TrainingPlan(steps_per_execution=7, xla_loop=True)


def test_a_smaller_last_batch(keras):
    model, _ = numeric_models.dense(keras)
    rows = STEPS * ROWS - 3
    data = tf.data.Dataset.from_tensor_slices(
        (numeric_models.floats(4)[:rows], numeric_models.floats(1, seed=1)[:rows])
    )
    compare(captured(model, data.batch(ROWS), epochs=1), [PLAN])


def test_little_memory_for_batches(keras, monkeypatch):
    monkeypatch.setattr(compiled_call, "_MOST_BYTES", 3 * ROWS * 5 * 4)
    loop = compare(captured(*numeric_models.dense(keras), epochs=1), [PLAN])
    assert loop.functions._kept["xla_loop"]._step_bytes == ROWS * 5 * 4


def test_the_data_end_early(keras):
    model, data = numeric_models.dense(keras)
    loop = FitLoop(captured(model, data, epochs=1))
    function = loop.functions.of(PLAN)
    iterator = iter(data.take(5))
    function.run(iterator, 1)
    with pytest.raises(tf.errors.OutOfRangeError):
        function.run(iterator, 7)
    assert int(model.optimizer.iterations) == 5


def test_a_call_that_cannot_be_compiled(keras):
    model, data = numeric_models.dense(keras)
    keras_api = FitLoop(captured(model, data)).keras_api
    spec = data.element_spec
    assert compiled_call.obstacle(model, keras_api, spec) is None
    sparse = (tf.SparseTensorSpec([None, 4]), spec[1])
    assert "dense" in compiled_call.obstacle(model, keras_api, sparse)

    class Own(keras.Model):
        def train_step(self, data):
            return super().train_step(data)

    own = model_cases.linear(keras, Own)
    assert "train_step" in compiled_call.obstacle(own, keras_api, spec)


def test_the_split(keras):
    model, data = numeric_models.prepared(keras)
    keras_api = FitLoop(captured(model, data)).keras_api
    preparation = Preparation(model, keras_api)
    stacked = next(iter(data.batch(5)))[0]
    prepared = preparation.prepare(stacked)
    # Numbers: scaled and unscaled; hour and word: one column for each value.
    assert sorted(part.shape[2] for part in prepared) == [2, 4, 7]
    assert preparation.row_bytes == (2 + 4 + 7) * 4
    for index in range(5):
        x = tf.nest.map_structure(lambda part, index=index: part[index], stacked)
        found = preparation.forward([part[index] for part in prepared])
        np.testing.assert_array_equal(found, model(x))


def test_nothing_to_split(keras):
    layers = keras.layers

    class Own(keras.Model):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return tf.reduce_mean(tf.square(y_pred - tf.reduce_sum(x, axis=1)))

    inputs = keras.Input((4,))
    sees_inputs = Own(inputs, layers.Dense(1)(layers.Rescaling(2.0)(inputs)))
    sees_inputs.compile("sgd", "mse")
    noisy = keras.Model(inputs, layers.Dense(1)(layers.GaussianNoise(1.0)(inputs)))
    noisy.compile("sgd", "mse")
    for model in (sees_inputs, noisy):
        keras_api = FitLoop(captured(model, numeric_models.dense(keras)[1])).keras_api
        preparation = Preparation(model, keras_api)
        x = tf.zeros([3, 2, 4])
        assert preparation.prepare(x) is x
        assert not preparation.row_bytes


def test_the_plan():
    assert PLAN.uses_xla
    assert PLAN.safer == TrainingPlan(steps_per_execution=7)
    for other in ({"xla": True}, {"fused_update": True}, {"micro_batches": 2}):
        with pytest.raises(pydantic.ValidationError, match="xla_loop"):
            TrainingPlan(steps_per_execution=7, xla_loop=True, **other)
    with pytest.raises(pydantic.ValidationError, match="steps_per_execution"):
        TrainingPlan(xla_loop=True)
