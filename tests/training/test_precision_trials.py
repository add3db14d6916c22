"""A narrower type is chosen if it is faster and trains the same, not otherwise."""

import contextlib
import time

import model_cases
import numpy as np
import pytest
import tensorflow as tf
from model_cases import captured

from tfx_perf.config import PerfConfig
from tfx_perf.training import precision
from tfx_perf.training.loop import Loop
from tfx_perf.training.trials import choosing, turns
from tfx_perf.training.trials.plan_key import fit_key
from tfx_perf.training.trials.short_trainings import ShortTrainings

pytestmark = pytest.mark.each_choice

NARROW = "mixed_bfloat16"


def small(keras, *, policy=None, factor=1.0, width=8, strategy=None):
    """Returns a `fit` whose model takes time in float32 only, and is another one in bfloat16."""

    class Slow(keras.layers.Layer):
        def call(self, x):
            if self.compute_dtype != "float32":
                return x * factor
            tf.numpy_function(lambda value: time.sleep(0.01) or value, [x], x.dtype)
            return x

    with precision.policy(policy), strategy.scope() if strategy else contextlib.nullcontext():
        model = keras.Sequential(
            [
                keras.layers.Input((4,)),
                keras.layers.Dense(width, activation="tanh"),
                Slow(),
                keras.layers.Dense(1, dtype="float32"),
            ]
        )
        model.compile("sgd", "mse")
        return captured(model, model_cases.regression().repeat(), steps_per_epoch=40)


@pytest.fixture
def choose(same_plans, monkeypatch):
    monkeypatch.setattr(turns, "BLOCK_SECONDS", 0.02)

    def run(call, other):
        training = {"trial_budget_seconds": 60, "steps_per_call": [5], "precision": "auto"}
        settings = PerfConfig.from_dict(
            {
                "training": training,
                "compilation": {"enabled": False},
                "schedule": {"planned_runs": 10**6},
            }
        )
        return choosing.by_trials(call, Loop(call), settings=settings, others={NARROW: other})

    return run


@pytest.mark.parametrize("is_mirrored", [False, True])
def test_it_is_chosen_where_it_is_faster(keras, choose, is_mirrored):
    one, another = (
        tf.distribute.MirroredStrategy(["CPU:0"]) if is_mirrored else None for _ in range(2)
    )
    call = small(keras, strategy=one)
    other = small(keras, policy=NARROW, strategy=another)
    before = call.model.get_weights()
    found = choose(call, other)
    assert str(found.plan) == "5 steps per call, mixed_bfloat16"
    assert found.fit == fit_key(other, Loop(other))
    trials = {str(trial.plan): trial for trial in found.trials}
    assert trials["plain fit"].status == "reference"
    assert trials["5 steps per call"].status == "slower"
    narrow = trials[str(found.plan)]
    assert narrow.status == "chosen"
    assert 0 < abs(narrow.loss - trials["plain fit"].loss) < 0.01  # it was another model
    for value, own in zip(call.model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(value, own)


def test_it_is_not_where_the_loss_is_another(keras, choose):
    found = choose(small(keras), small(keras, policy=NARROW, factor=1.5))
    trial = next(trial for trial in found.trials if trial.plan.precision)
    assert trial.status == "different"
    assert found.plan.precision is None


@pytest.mark.slow
def test_a_loss_that_parts_late_is_seen(keras, choose, monkeypatch):
    """In the first pass over the batches the losses are the same, later they are not."""
    own = ShortTrainings.losses

    def losses(self, plan, *, passes):
        curve = own(self, plan, passes=passes)
        return curve * (1 + (plan.precision is not None) * 0.02 * np.arange(passes))

    monkeypatch.setattr(ShortTrainings, "losses", losses)
    found = choose(small(keras), small(keras, policy=NARROW))
    trial = next(trial for trial in found.trials if trial.plan.precision)
    assert trial.status == "different", trial.reason
    assert "loss differs by" in trial.reason


def test_another_model_is_not_compared(keras, choose):
    found = choose(small(keras), small(keras, policy=NARROW, width=9))
    assert found.plan.is_plain_fit
    assert "Expected the training code to build the same model every time" in found.plan_reason


def test_float16_is_not_tried_on_a_processor():
    assert precision.candidates() == (NARROW,)
    assert precision.fixed("auto") is None
    assert precision.fixed(NARROW) == NARROW
