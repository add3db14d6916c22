"""All methods that Keras' `fit` would call are called, or the step is not split.

Methods that the user overrides are found by `private_attributes`.
"""

import functools

import keras as keras3
import model_cases
import numeric_models
import pytest
import tensorflow as tf
import tf_keras
from model_cases import captured, compare

from tfx_perf.config import PerfConfig
from tfx_perf.core import interception
from tfx_perf.training.keras_api import either_keras
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.speedups import fused_update
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.step import compiled_call
from tfx_perf.training.step.compiled_call import Preparation
from tfx_perf.training.step.slices import slicing_obstacle
from tfx_perf.training.tuning import families
from tfx_perf.training.tuning.choice import PlanChoice

pytestmark = [pytest.mark.one_case, pytest.mark.usefixtures("no_flops")]

SEVERAL = TrainingPlan(steps_per_execution=5)


def api_and_model(keras):
    model = model_cases.dense(keras)
    return either_keras.api_of(model), model


def own_step(model):
    def train_step(data):
        return {"loss": model_cases.descend(model, data), "share": tf.reduce_mean(data[1])}

    return train_step


def halved(gradients_and_variables):
    return [(gradient / 2, variable) for gradient, variable in gradients_and_variables]


def compute_gradients(optimizer):
    own = optimizer.compute_gradients
    optimizer.compute_gradients = lambda *args, **named: halved(own(*args, **named))


def minimize(optimizer):
    def own(loss, variables, tape=None):
        pairs = zip(tape.gradient(loss, variables), variables, strict=True)
        optimizer.apply_gradients(halved(pairs))

    optimizer.minimize = own


class Halving(tf_keras.optimizers.SGD):
    def compute_gradients(self, loss, var_list, tape=None):
        return halved(super().compute_gradients(loss, var_list, tape))


class LegacyHalving(tf_keras.optimizers.legacy.SGD):
    def _get_gradients(self, tape, loss, var_list, grad_loss=None):
        return halved(super()._get_gradients(tape, loss, var_list, grad_loss))


def sgd(own=lambda optimizer: None):
    optimizer = tf_keras.optimizers.SGD(0.1)
    own(optimizer)
    return optimizer


OWN_GRADIENTS = {
    "compute_gradients of a class": lambda: Halving(0.1),
    "compute_gradients of an instance": lambda: sgd(compute_gradients),
    "minimize of an instance": lambda: sgd(minimize),
    "inside a loss scale": lambda: tf_keras.mixed_precision.LossScaleOptimizer(Halving(0.1)),
    "a legacy one": lambda: LegacyHalving(0.1),
}


def trained_as_plain_fit_does(model):
    return compare(captured(model, model_cases.regression()), [SEVERAL])


def tried(loop, model):
    settings = PerfConfig.from_dict({"compilation": {"enabled": True}})
    return families.families(loop, settings=settings, step_seconds=0.001)


@pytest.mark.one_case
@pytest.mark.each_choice
@pytest.mark.parametrize("name", OWN_GRADIENTS)
def test_an_optimizer_that_overrides_the_computation_of_gradients(name):
    model = model_cases.dense(tf_keras)
    model.compile(OWN_GRADIENTS[name](), "mse")
    loop = trained_as_plain_fit_does(model)
    assert "computes gradients in its own way" in loop.keras_api.splitting_obstacle(model)
    found, refused = tried(loop, model)
    assert [str(plan) for plans in found for plan in plans] == ["10 steps per execution"]
    assert [record.status for record in refused] == ["untried", "untried"]


def test_a_train_step_set_on_the_instance(keras):
    model = model_cases.linear(keras)
    model.train_step = own_step(model)
    loop = trained_as_plain_fit_does(model)
    assert "its own train_step" in loop.keras_api.splitting_obstacle(model)
    assert slicing_obstacle(model, loop.keras_api)
    assert compiled_call.obstacle(model, loop.keras_api, loop.element_spec)


def test_keras_own_classes_can_be_split(keras):
    keras_api, model = api_and_model(keras)
    assert keras_api.splitting_obstacle(model) is None
    for optimizer in (
        "adam",
        numeric_models.scaled(keras, keras.optimizers.SGD()),
        *([tf_keras.optimizers.legacy.Adam()] if keras is tf_keras else []),
    ):
        model.compile(optimizer, "mse")
        assert keras_api.splitting_obstacle(model) is None


def test_a_model_without_trainable_weights_cannot_be_split(keras):
    keras_api, model = api_and_model(keras)
    model.trainable = False
    model.compile("adam", "mse")
    assert keras_api.splitting_obstacle(model) == "the model has nothing to train"


def test_an_update_step_set_on_the_instance_is_not_fused(keras):
    model = model_cases.dense(keras)

    def update_step(gradient, variable, *learning_rate):
        variable.assign_sub(0.01 * tf.sign(gradient))

    model.optimizer.update_step = update_step
    assert not fused_update.is_possible(model.optimizer, either_keras.api_of(model))
    trained_as_plain_fit_does(model)


@pytest.mark.parametrize(
    "how", [{"micro_batches": 2}, {"gradient_checkpointing": 2}], ids=lambda how: next(iter(how))
)
def test_the_loss_scale_is_not_a_constant_if_a_known_plan_is_traced_first(how):
    model = keras3.Sequential([keras3.Input([4]), keras3.layers.Dense(4), keras3.layers.Dense(1)])
    scaling = keras3.optimizers.LossScaleOptimizer(keras3.optimizers.SGD(0.0), 2.0**120)
    model.compile(scaling, "mse")
    rows = tf.ones([8, 4])
    data = tf.data.Dataset.from_tensors((1000 * rows, rows[:, :1])).repeat(40)
    plan = TrainingPlan(steps_per_execution=2, **how)
    session = TrainingSession(PerfConfig(), choice=PlanChoice(plan=plan, plan_reason="given"))
    with interception.intercepting_fit(session.fit):
        model.fit(data, verbose=0)
    assert session.record.plan == plan
    assert int(scaling.inner_optimizer.iterations) > 0, "in each step an overflow"


def test_a_scaled_loss_overflows_in_slices_if_it_does_in_the_whole_batch(keras):
    def trained(session=None):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(1)])
        scaling = keras.optimizers if keras is keras3 else keras.mixed_precision
        optimizer = scaling.LossScaleOptimizer(keras.optimizers.SGD(1e-9), initial_scale=2.0**123)
        model.compile(optimizer, "mse")
        rows = tf.random.stateless_normal([16, 4], seed=[1, 2])
        rows *= tf.constant([[1e3]] + [[1.0]] * 15)  # nearly all of the gradient is of row 0
        data = tf.data.Dataset.from_tensors((rows, tf.ones([16, 1]))).repeat(40)
        if session is None:
            model.fit(data, verbose=0)
        else:
            with interception.intercepting_fit(session.fit):
                model.fit(data, verbose=0)
        return float(optimizer.dynamic_scale if keras is keras3 else optimizer.loss_scale)

    plan = TrainingPlan(steps_per_execution=2, micro_batches=8)
    session = TrainingSession(PerfConfig(), choice=PlanChoice(plan=plan, plan_reason="given"))
    assert trained(session) == trained() < 2.0**120
    assert session.record.plan == plan


def test_a_loss_with_custom_scaling_is_not_sliced():
    class Own(keras3.optimizers.SGD):
        def scale_loss(self, loss):
            return loss * loss

    model = model_cases.dense(keras3)
    model.compile(Own(0.01), "mse")
    trained_as_plain_fit_does(model)
    assert "scales the loss in its own way" in slicing_obstacle(model, either_keras.api_of(model))


def test_a_custom_compute_metrics_sees_whole_batches(keras):
    model = model_cases.dense(keras)
    model.compute_metrics = functools.partial(model.compute_metrics)
    obstacle = slicing_obstacle(model, either_keras.api_of(model))
    assert obstacle == "the model has its own compute_metrics"


@pytest.mark.parametrize("name", ["call", "compute_loss"])
def test_inputs_that_a_method_of_the_instance_sees_are_not_prepared(keras, name):
    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Rescaling(2.0)(inputs)))
    model.compile("sgd", "mse")
    keras_api = either_keras.api_of(model)
    assert Preparation(model, keras_api).row_bytes
    own = getattr(model, name)
    setattr(model, name, functools.partial(own))
    assert not Preparation(model, keras_api).row_bytes
