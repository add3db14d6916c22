"""Updates by one kernel: the same weights, and only one kernel."""

import contextlib

import model_cases
import numeric_models
import numpy as np
import pytest
import tensorflow as tf
from test_numerics import assert_equal_to_plain_fit

from tfx_perf.training.keras_api import either_keras
from tfx_perf.training.speedups import fused_update
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.step.split_step import SplitStep

pytestmark = pytest.mark.one_case

FUSED = TrainingPlan(steps_per_execution=7, fused_update=True)
FUSED_XLA_SLICED = TrainingPlan(steps_per_execution=7, xla=True, micro_batches=3, fused_update=True)

OPTIMIZERS = {
    "Adam": lambda keras: keras.optimizers.Adam(0.01, beta_1=0.8, epsilon=1e-3),
    "AdamW": lambda keras: keras.optimizers.AdamW(0.01, weight_decay=0.1),
    "momentum": lambda keras: keras.optimizers.SGD(0.05, momentum=0.9),
    "nesterov": lambda keras: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "clipping and EMA": lambda keras: keras.optimizers.Adam(
        0.01, global_clipnorm=0.05, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=5
    ),
    "schedule": lambda keras: keras.optimizers.Adam(
        keras.optimizers.schedules.ExponentialDecay(0.05, decay_steps=3, decay_rate=0.5)
    ),
    "loss scale": lambda keras: numeric_models.scaled(
        keras, keras.optimizers.Adam(0.01), initial_scale=1024.0
    ),
}
NOT_FUSED = {
    # 1 - 0.9999 in float32 is too large by a relative 1.7e-4.
    "beta too close to 1": lambda keras: keras.optimizers.Adam(beta_2=0.9999),
    "amsgrad": lambda keras: keras.optimizers.Adam(amsgrad=True),
    "plain SGD": lambda keras: keras.optimizers.SGD(),
    "RMSprop": lambda keras: keras.optimizers.RMSprop(),
    "own": lambda keras: type("Own", (keras.optimizers.Adam,), {"update_step": _own})(),
}


def _own(self, gradient, variable, *learning_rate):
    variable.assign_sub(tf.sign(gradient))


# For Adam's second moments, which the kernel rounds differently; the weights agree to 1e-5.
SLOT_TOLERANCE = 2e-5


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weights_are_those_of_plain_fit(keras, name):
    build = numeric_models.with_optimizer(OPTIMIZERS[name])
    assert_equal_to_plain_fit(
        keras, build, [FUSED, FUSED_XLA_SLICED], slot_tolerance=SLOT_TOLERANCE
    )


def in_float64(make):
    def build(keras):
        model = keras.Sequential(
            [
                keras.layers.Input((4,), dtype="float64"),
                keras.layers.Dense(8, activation="tanh", dtype="float64"),
                keras.layers.Dense(1, dtype="float64"),
            ]
        )
        model.compile(make(keras), "mse")
        rows = 5 * numeric_models.STEPS  # slices of 2, 2 and 1: their shares are inexact in float32
        arrays = (numeric_models.floats(4), numeric_models.floats(1, seed=1))
        tensors = tuple(array[:rows].astype("float64") for array in arrays)
        return model, tf.data.Dataset.from_tensor_slices(tensors).batch(5)

    return build


@pytest.mark.parametrize("name", ["Adam", "AdamW", "momentum", "nesterov"])
def test_in_float64_the_weights_are_as_exact_as_float64(keras, name):
    floatx = keras.backend.floatx()
    keras.backend.set_floatx("float64")  # losses are computed in it
    try:
        sliced = TrainingPlan(steps_per_execution=7, micro_batches=3)
        build = in_float64(OPTIMIZERS[name])
        # float32 anywhere would leave errors of 1e-8; Adam magnifies rounding of small gradients.
        # The slots follow from the weights; metrics may be kept in float32.
        assert_equal_to_plain_fit(
            keras, build, [FUSED, sliced], tolerance=1e-11, slot_tolerance=1e-6
        )
    finally:
        keras.backend.set_floatx(floatx)


@pytest.mark.parametrize("steps_done", [0, 1, 100, 20_000])
def test_the_learning_rate_is_keras_own_at_any_step(keras, steps_done):
    """At first the kernel's second moments are too small, later they are not."""
    optimizer = keras.optimizers.Adam(1e-3, epsilon=1e-12)
    gradient, weight = tf.ones([1]), tf.Variable([0.0])
    optimizer.build([weight])
    keras_api, moved = either_keras.api_of(keras.Sequential()), []
    for context in (contextlib.nullcontext(), fused_update.fused(optimizer, keras_api)):
        weight.assign([0.0])
        optimizer.iterations.assign(steps_done)
        # The moments after that many gradients of 1.
        beta = 0.999 if isinstance(context, contextlib.nullcontext) else float(np.float32(0.999))
        optimizer._velocities[0].assign([1 - beta**steps_done])
        optimizer._momentums[0].assign([1 - 0.9**steps_done])
        with context:
            optimizer.apply_gradients([(gradient, weight)])
        moved.append(weight.numpy().item())
    np.testing.assert_allclose(moved[1], moved[0], rtol=1e-6)


def kernels(keras, model, data):
    """Returns the names of the kernels in a step of the model, traced with a fused update."""
    keras_api = either_keras.api_of(model)
    batch = next(iter(data))
    model_cases.captured(model, data)
    step = SplitStep(model, keras_api, updating=fused_update.fused)
    graph = tf.function(step.run, autograph=False).get_concrete_function(batch).graph
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    return [node.op for node in nodes if node.op.startswith("ResourceApply")]


def test_each_variable_has_one_kernel(keras):
    model, data = numeric_models.with_optimizer(OPTIMIZERS["Adam"])(keras)
    assert kernels(keras, model, data) == ["ResourceApplyAdam"] * len(model.trainable_variables)
    model, data = numeric_models.with_optimizer(OPTIMIZERS["nesterov"])(keras)
    found = kernels(keras, model, data)
    assert found == ["ResourceApplyKerasMomentum"] * len(model.trainable_variables)
    assert "update_step" not in vars(model.optimizer)  # restored


def test_sparse_gradients_use_keras_own_update(keras):
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((1,)), layers.Embedding(5, 4), layers.Flatten(), layers.Dense(1)]
    )
    model.compile("adam", "mse")
    data = numeric_models.batched(numeric_models.integers(5, 1), numeric_models.floats(1))
    assert kernels(keras, model, data) == ["ResourceApplyAdam"] * 2  # for Dense
    assert_equal_to_plain_fit(
        keras, lambda keras: (model, data), [FUSED], slot_tolerance=SLOT_TOLERANCE
    )


@pytest.mark.parametrize("name", NOT_FUSED)
def test_optimizers_without_a_kernel_are_left_alone(keras, name):
    model, _ = numeric_models.with_optimizer(NOT_FUSED[name])(keras)
    assert not fused_update.is_possible(model.optimizer, either_keras.api_of(model))
