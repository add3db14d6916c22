"""A plan that turns out slower than plain `fit` is left, and nothing else changes."""

import numpy as np
import pytest
import tensorflow as tf
from model_cases import Snapshot, assert_same, captured
from tensorflow.python.ops import control_flow_util

from tfx_perf.training.loop import Loop, fit_steps
from tfx_perf.training.optimizations.plan import TrainingPlan

STEPS = 60
XLA = TrainingPlan(steps_per_call=1, xla=True)


def slow_under_xla(keras):
    """A model with a layer that has much more to do where XLA compiles it."""

    class Slow(keras.layers.Layer):
        def call(self, inputs):
            if control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
                square = tf.tile(inputs[:1, :1], (500, 500))
                for _ in range(4):
                    square = tf.linalg.matmul(square, square) * 1e-3
                return inputs + 0.0 * tf.reduce_mean(square)
            return inputs

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((8,)), Slow(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    inputs = np.random.default_rng(1).normal(size=(16, 8)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((inputs, inputs[:, :1])).batch(16).repeat()
    return model, data


@pytest.fixture
def loop_and_weights(keras):
    model, data = slow_under_xla(keras)
    call = captured(model, data, epochs=1, steps_per_epoch=STEPS)
    before = Snapshot(model)
    call.proceed()
    expected = Snapshot(model)
    before.restore()
    model.train_function = model.test_function = None
    return Loop(call), model, expected


@pytest.mark.one_case
def test_a_slow_plan_is_left(loop_and_weights):
    loop, model, expected = loop_and_weights
    _, timer = loop.fit(XLA, plain_step_seconds=1e-6)
    assert "left for plain steps" in loop.speed_watch.note
    steps = [seconds for _, seconds in timer.series()]
    assert np.median(steps[-15:]) < 0.8 * np.median(steps[5:20])
    assert timer.step_count == STEPS
    assert_same(Snapshot(model), expected, rtol=1e-4)


@pytest.mark.one_case
def test_a_plan_stays_where_plain_steps_are_no_faster(loop_and_weights, monkeypatch):
    loop, model, expected = loop_and_weights
    monkeypatch.setattr(fit_steps, "_timed", lambda run, *arguments: (run(*arguments), 0.01))
    # As if the machine had become slower since the trials: for both.
    loop.fit(TrainingPlan(steps_per_call=1), plain_step_seconds=1e-6)
    assert loop.speed_watch.note is None
    assert_same(Snapshot(model), expected, rtol=1e-4)


def test_a_kept_promise_costs_no_plain_step(loop_and_weights, monkeypatch):
    loop, model, expected = loop_and_weights
    plain_steps = []
    monkeypatch.setattr(loop.functions, "plain_step", lambda: plain_steps.append)
    loop.fit(TrainingPlan(steps_per_call=1), plain_step_seconds=60.0)
    assert not plain_steps
    assert_same(Snapshot(model), expected, rtol=1e-4)
