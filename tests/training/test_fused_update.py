"""Updates by one kernel: the same weights, and really one kernel."""

import numeric_models
import pytest
import tensorflow as tf
from test_numerics import assert_equal_to_plain_fit

from tfx_perf.training.lines import keras_line
from tfx_perf.training.plan import TrainingPlan
from tfx_perf.training.step import fused_update
from tfx_perf.training.step.split_step import SplitStep

FUSED = TrainingPlan(steps_per_call=7, fused_update=True)
FUSED_XLA_SLICED = TrainingPlan(steps_per_call=7, xla=True, micro_batches=3, fused_update=True)

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
    "amsgrad": lambda keras: keras.optimizers.Adam(amsgrad=True),
    "plain SGD": lambda keras: keras.optimizers.SGD(),
    "RMSprop": lambda keras: keras.optimizers.RMSprop(),
    "own": lambda keras: type("Own", (keras.optimizers.Adam,), {"update_step": _own})(),
}


def _own(self, gradient, variable, *learning_rate):
    variable.assign_sub(tf.sign(gradient))


# The second moments of Adam, which the kernel rounds in its own way; the weights keep to 1e-5.
SLOT_TOLERANCE = 2e-5


def with_optimizer(make):
    def build(keras):
        model, data = numeric_models.dense(keras)
        model.compile(make(keras), "mse", metrics=["mae"])
        return model, data

    return build


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weights_are_those_of_plain_fit(keras, name):
    build = with_optimizer(OPTIMIZERS[name])
    assert_equal_to_plain_fit(
        keras, build, [FUSED, FUSED_XLA_SLICED], slot_tolerance=SLOT_TOLERANCE
    )


@pytest.mark.parametrize("name", ["transformer", "multi_output"])
def test_models(keras, name):
    build = numeric_models.MODELS[name]
    assert_equal_to_plain_fit(keras, build, [FUSED], slot_tolerance=SLOT_TOLERANCE)


def kernels(keras, model, data):
    """Returns the names of the kernels in a step of the model, traced with a fused update."""
    line = keras_line.line_of(model)
    batch = next(iter(data))
    line.build(model, batch)
    step = SplitStep(model, line, xla=False, fused_update=True)
    graph = tf.function(step.run, autograph=False).get_concrete_function(batch).graph
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for f in definition.library.function for n in f.node_def)]
    return [node.op for node in nodes if node.op.startswith("ResourceApply")]


def test_each_variable_has_one_kernel(keras):
    model, data = with_optimizer(OPTIMIZERS["Adam"])(keras)
    assert kernels(keras, model, data) == ["ResourceApplyAdam"] * len(model.trainable_variables)
    model, data = with_optimizer(OPTIMIZERS["nesterov"])(keras)
    found = kernels(keras, model, data)
    assert found == ["ResourceApplyKerasMomentum"] * len(model.trainable_variables)


def test_sparse_gradients_take_keras_own_way(keras):
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((1,)), layers.Embedding(5, 4), layers.Flatten(), layers.Dense(1)]
    )
    model.compile("adam", "mse")
    data = numeric_models.batched(
        numeric_models.integers(5, 1), numeric_models.floats(1)
    )
    assert kernels(keras, model, data) == ["ResourceApplyAdam"] * 2  # of Dense
    assert_equal_to_plain_fit(
        keras, lambda keras: (model, data), [FUSED], slot_tolerance=SLOT_TOLERANCE
    )


@pytest.mark.parametrize("name", NOT_FUSED)
def test_what_has_no_kernel_is_left_alone(keras, name):
    model, _ = with_optimizer(NOT_FUSED[name])(keras)
    assert not fused_update.is_possible(model.optimizer, keras_line.line_of(model))


def test_the_optimizer_is_as_before(keras):
    model, data = with_optimizer(OPTIMIZERS["Adam"])(keras)
    kernels(keras, model, data)
    assert "update_step" not in vars(model.optimizer)
