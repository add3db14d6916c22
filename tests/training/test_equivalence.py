"""A plan that leads elsewhere than Keras' `fit` is detected, and the record says where."""

import contextlib

import model_cases
import numeric_models
import numpy as np
import pytest
import tensorflow as tf
from model_cases import captured

from tfx_perf.training.keras_api import either_keras
from tfx_perf.training.loop import turns
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.speedups import fused_update
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.step.split_step import SplitStep
from tfx_perf.training.tuning import choosing
from tfx_perf.training.tuning.contest import Contender
from tfx_perf.training.tuning.cost_model import Budget
from tfx_perf.training.tuning.equivalence import EquivalenceCheck
from tfx_perf.training.tuning.initial_state import InitialState
from tfx_perf.training.tuning.state_tolerance import StateTolerance, TrainedState

pytestmark = pytest.mark.one_case

SEVERAL = TrainingPlan(steps_per_execution=7)
FUSED = TrainingPlan(steps_per_execution=7, fused_update=True)
XLA = TrainingPlan(steps_per_execution=7, xla=True)
XLA_CALL = TrainingPlan(steps_per_execution=7, xla_loop=True)


@pytest.fixture(autouse=True)
def same_weights():
    """The effect of the planted fault depends on the weights, so they are always the same."""
    either_keras.set_random_seed(3)


@contextlib.contextmanager
def checking(model, data, **arguments):
    """Yields a check whose reference has been run."""
    call = captured(model, data, **{"epochs": 1, **arguments})
    loop = FitLoop(call)
    start = InitialState(model, loop.keras_api)
    check = EquivalenceCheck(
        loop,
        PLAIN_FIT,
        data.repeat(),
        start=start,
        budget=Budget(2400.0, sync=loop.sync),
        loss_tolerance=0.01,
    )
    check.reference(check.first_look())
    check._hopeless_seconds = 1e9  # speed is not tested here
    yield check


def scaled_gradients(monkeypatch, factor):
    own = SplitStep._apply
    monkeypatch.setattr(
        SplitStep, "_apply", lambda self, grads: own(self, [grad * factor for grad in grads])
    )


def test_weights_that_rounding_does_not_explain(keras, monkeypatch):
    """The loss differs by less than 1e-4."""
    scaled_gradients(monkeypatch, 1.001)
    model, data = numeric_models.cnn(keras)
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    with checking(model, data) as check:
        found = check.check(FUSED.model_copy(update={"fused_update": False, "xla": True}))
        assert found.status == "different"
        assert "of its size, rounding explains" in found.reason
        assert "kernel" in found.reason or "bias" in found.reason
        assert abs(found.loss - check._expected.logs["loss"]) < 1e-4 * found.loss
        assert isinstance(check.check(XLA_CALL), type(found))


@pytest.mark.parametrize("steps_per_execution", [3, 7, 8])
def test_a_call_may_have_more_steps_than_the_check_has_left(keras, steps_per_execution):
    """In epochs that are longer than a check."""
    model, data = numeric_models.dense(keras)
    with checking(model, data.repeat(), steps_per_epoch=1000) as check:
        assert isinstance(
            check.check(TrainingPlan(steps_per_execution=steps_per_execution)), Contender
        )


def test_slots_alone(keras, monkeypatch):
    own = fused_update._Adam.__call__

    def off(self, variable, gradient, *, learning_rate):
        own(self, variable, gradient, learning_rate=learning_rate)
        for velocity in self._optimizer._velocities:
            velocity.assign(velocity * 1.0001)

    monkeypatch.setattr(fused_update._Adam, "__call__", off)
    with checking(*numeric_models.dense(keras)) as check:
        found = check.check(FUSED)
    assert found.status == "different"
    assert "velocity" in found.reason or "v/dense" in found.reason


def test_metrics_alone(keras):
    """Tested with a metric that sees one batch in twenty twice."""
    model, data = numeric_models.dense(keras)
    with checking(model, data) as check:
        keras_api = check._loop.keras_api
        own = type(keras_api).metrics
        assert isinstance(check.check(FUSED), Contender)

        def metrics(model, x, y, y_pred, weight):
            own(keras_api, model, x[:4], y[:4], y_pred[:4], weight)
            return own(keras_api, model, x, y, y_pred, weight)

        keras_api.metrics = metrics
        found = check.check(XLA)
    assert found.status == "different"


def test_moving_averages_alone(keras):
    model, data = numeric_models.batch_norm(keras)
    plan = TrainingPlan(steps_per_execution=7, xla=True)
    with checking(model, data) as check:
        keras_api = check._loop.keras_api
        own = type(keras_api).forward

        def forward(model, x):
            average = model.layers[1].moving_mean
            average.assign(average * 1.001)
            return own(keras_api, model, x)

        keras_api.forward = forward
        found = check.check(plan)
    assert found.status == "different"
    assert "moving_mean" in found.reason


@pytest.mark.parametrize("name", ["dense", "wide_and_deep", "batch_norm"])
def test_a_rounding_difference_passes(keras, name):
    build = getattr(numeric_models, name)
    with checking(*build(keras)) as check:
        for plan in (SEVERAL, XLA, XLA_CALL):
            found = check.check(plan)
            assert isinstance(found, Contender), found.reason
            assert not found.note


def test_rounding_is_measured_more_often_before_a_plan_counts_as_different(keras, monkeypatch):
    """The first measurement happens to find no effect."""
    for name, instead in (("restore_rounded", InitialState.restore), ("subtract_rounding", None)):
        own = getattr(InitialState, name)
        monkeypatch.setattr(
            InitialState, name,
            lambda self, seed, own=own, instead=instead: own(self, seed) if seed
            else instead and instead(self),
        )  # fmt: skip
    with checking(*numeric_models.half_precision(keras)) as check:
        assert isinstance(check.check(XLA), Contender)


@pytest.mark.slow
def test_a_gradient_that_is_zero_in_theory_may_differ_arbitrarily(keras):
    layers = keras.layers
    inputs = keras.Input((6, 8))
    hidden = layers.MultiHeadAttention(2, 4)(inputs, inputs)  # its keys have a bias
    model = keras.Model(inputs, layers.Dense(1)(hidden))
    model.compile("adam", "mse")
    data = numeric_models.batched(numeric_models.floats(6, 8), numeric_models.floats(6, 1, seed=1))
    with checking(model, data) as check:
        found = check.check(XLA)
        assert isinstance(found, Contender), found.reason
        assert not found.note  # the model has no randomness


def dropout(keras):
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((4,)), layers.Dense(16), layers.Dropout(0.5), layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    return model, numeric_models.batched(numeric_models.floats(4), numeric_models.floats(1, seed=1))


@pytest.mark.slow
def test_random_models_are_compared_by_their_statistics(keras, monkeypatch):
    with checking(*dropout(keras)) as check:
        found = check.check(XLA)
        assert isinstance(found, Contender), found.reason
        assert "random" in found.note
        found = check.check(SEVERAL)
        assert isinstance(found, Contender), found.reason
        # Keras 3 draws from variables, so that without XLA the masks are those of Keras fit.
        assert bool(found.note) == (keras.__name__ == "tf_keras")


def test_a_different_training_is_detected_for_random_models_too(keras, monkeypatch):
    scaled_gradients(monkeypatch, -1.0)
    with checking(*dropout(keras)) as check:
        found = check.check(XLA)
        assert found.status == "different"
        assert "chance explains" in found.reason


def without_loss(keras):
    class Own(keras.Model):
        def train_step(self, data):
            error = model_cases.descend(self, data)
            return {"error": error, "targets": tf.reduce_mean(data[1], axis=0)}

    inputs = keras.Input((4,))
    model = Own(inputs, keras.layers.Dense(2)(inputs))
    model.compile("sgd")
    return model, model_cases.batched(model_cases.features(4), model_cases.features(2, seed=1))


def test_an_own_train_step_without_a_loss_gets_a_plan(keras, monkeypatch, same_plans):
    monkeypatch.setattr(turns, "BLOCK_SECONDS", 0.02)
    model, data = without_loss(keras)
    call = captured(model, data.repeat(), steps_per_epoch=200, epochs=1)
    settings = model_cases.settings_that_try(xla=True)
    found = choosing.by_trials(call, FitLoop(call), settings=settings)
    trial = next(
        trial for trial in found.trials if trial.plan == TrainingPlan(steps_per_execution=10)
    )
    assert trial.status in {"chosen", "slower"}, trial.reason
    assert trial.speedup is not None
    assert trial.loss is None


def values(**arrays):
    return {name: np.asarray(array, "float32") for name, array in arrays.items()}


def state_tolerance(reference, *others, metrics=()):
    found = StateTolerance(reference, metrics=metrics, examples=100)
    for other in others:
        found.allow(other)
    return found


def test_an_example_that_crosses_a_threshold_is_no_difference():
    reference = TrainedState(
        values(weight=1.0, total=50, count=100), values(accuracy=0.5, loss=1.0)
    )
    rule = state_tolerance(reference, metrics=["total", "count"])
    flipped = TrainedState(values(weight=1.0, total=51, count=100), values(accuracy=0.51, loss=1.0))
    assert rule.exceeded(flipped, loss_tolerance=0.01) is None
    many = TrainedState(values(weight=1.0, total=60, count=100), values(accuracy=0.6, loss=1.0))
    assert rule.exceeded(many, loss_tolerance=0.01).name == "total"
    unexplained = TrainedState(reference.values, values(accuracy=0.51, loss=1.0))
    assert rule.exceeded(unexplained, loss_tolerance=0.01).name == "logs['accuracy']"
    lost = TrainedState(flipped.values, values(accuracy=0.51, loss=1.01))
    assert rule.exceeded(lost, loss_tolerance=0.01).name == "logs['loss']"


@pytest.mark.each_choice
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_values_differ_unless_those_of_keras_fit_are_not_finite_either(bad):
    reference, other = (TrainedState(values(weight=[1.0, each]), {}) for each in (2.0, bad))
    assert state_tolerance(reference).exceeded(other, loss_tolerance=0.01).name == "weight"
    assert state_tolerance(other).exceeded(other, loss_tolerance=0.01) is None
    assert state_tolerance(other).exceeded(reference, loss_tolerance=0.01)


def test_integers_are_equal_or_not():
    reference, other = (
        TrainedState({"iteration": np.int64(each)}, {}) for each in (2**60, 2**60 + 1)
    )
    assert state_tolerance(reference).exceeded(reference, loss_tolerance=0.01) is None
    assert state_tolerance(reference).exceeded(other, loss_tolerance=0.01).name == "iteration"
