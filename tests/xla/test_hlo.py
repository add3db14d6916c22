"""FLOPs (`flops`) and buffer sizes of compiled steps, against counts by hand."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tfx_perf.training.keras_api import variables
from tfx_perf.xla import hlo

pytestmark = [pytest.mark.each_choice, pytest.mark.usefixtures("quick_traces")]

LINES = pytest.mark.parametrize("line", [keras, tf_keras], ids=["keras", "tf_keras"])


def forward_flops(layer, *shape):
    layer(tf.zeros(shape))  # builds it
    return hlo.count_flops(hlo.step_hlo(layer, tf.zeros(shape), optimized=False))


def training_flops(model, x, y):
    model.compile(optimizer="adam", loss="mse")
    return hlo.count_flops(hlo.model_step_hlo(model, (x, y), optimized=False))


def scales(model):
    found = variables.named_variables({"optimizer": model.optimizer}).values()
    return [float(np.array(each)) for each in found if not each.shape.rank]


def dense_model(line):
    return line.Sequential(
        [line.layers.Input((8,)), line.layers.Dense(16, activation="relu"), line.layers.Dense(1)]
    )


@LINES
def test_dense_training_step(line):
    first, second = 2 * 32 * 8 * 16, 2 * 32 * 16 * 1
    # The first layer has no gradient with respect to its input.
    expected = 2 * first + 3 * second
    assert training_flops(dense_model(line), tf.zeros((32, 8)), tf.zeros((32, 1))) == expected


@LINES
@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("strides", [1, 2])
def test_convolution_training_step(line, padding, strides):
    model = line.Sequential(
        [
            line.layers.Input((12, 12, 3)),
            line.layers.Conv2D(4, 3, padding=padding, strides=strides),
            line.layers.Conv2D(5, 3, padding=padding, strides=strides),
        ]
    )
    first_side = -(-12 // strides) if padding == "same" else (12 - 3) // strides + 1
    second_side = (
        -(-first_side // strides) if padding == "same" else (first_side - 3) // strides + 1
    )
    first = 2 * 2 * first_side**2 * 9 * 3 * 4
    second = 2 * 2 * second_side**2 * 9 * 4 * 5
    target = tf.zeros((2, second_side, second_side, 5))
    flops = training_flops(model, tf.zeros((2, 12, 12, 3)), target)
    assert flops == 2 * first + 3 * second


@LINES
def test_depthwise_convolution(line):
    flops = forward_flops(line.layers.DepthwiseConv2D(3, padding="same"), 2, 8, 8, 6)
    assert flops == 2 * 2 * 64 * 9 * 6


@LINES
def test_multi_head_attention(line):
    batch, length, width, heads, key = 2, 10, 32, 4, 8
    layer = line.layers.MultiHeadAttention(num_heads=heads, key_dim=key)
    x = tf.zeros((batch, length, width))
    layer(x, x)
    flops = hlo.count_flops(hlo.step_hlo(lambda x: layer(x, x), x, optimized=False))
    projections = 4 * 2 * batch * length * width * heads * key
    scores_and_mix = 2 * 2 * batch * heads * length * length * key
    assert flops == projections + scores_and_mix


@LINES
def test_recurrent_training_step_counts_every_time_step(line):
    batch, length, width, units = 4, 10, 8, 16
    model = line.Sequential([line.layers.Input((length, width)), line.layers.LSTM(units)])
    flops = training_flops(model, tf.zeros((batch, length, width)), tf.zeros((batch, units)))
    gates = 4 * units
    from_input, from_state = 2 * batch * width * gates, 2 * batch * units * gates
    # tf_keras' loop also computes the gradient of its input, which is unused here.
    input_products = 3 if line is tf_keras else 2
    assert flops == length * (input_products * from_input + 3 * from_state)


def test_conditional_counts_its_dearest_branch():
    weights = tf.Variable(tf.zeros((8, 4)))

    def step(x):
        return tf.cond(x[0, 0] > 0, lambda: x @ weights @ tf.transpose(weights), lambda: x)

    assert hlo.count_flops(hlo.step_hlo(step, tf.zeros((3, 8)), optimized=False)) == 4 * 3 * 8 * 4


@LINES
def test_buffer_sizes_match_variables_and_batch(line):
    model = dense_model(line)
    model.compile(optimizer="adam", loss="mse")
    batch = (tf.zeros((32, 8)), tf.zeros((32, 1)))
    small = hlo.buffer_sizes(hlo.model_step_hlo(model, batch, optimized=True))
    weights = 4 * (8 * 16 + 16 + 16 + 1)
    slots_and_counters = 2 * weights + 8 + 4
    loss_tracker = 8
    assert small.argument_bytes == weights + slots_and_counters + 4 * 32 * 9 + loss_tracker
    # The hidden activation must be kept for the backward step.
    assert small.temp_bytes >= 4 * 32 * 16
    batch = (tf.zeros((64, 8)), tf.zeros((64, 1)))
    large = hlo.buffer_sizes(hlo.model_step_hlo(model, batch, optimized=True))
    assert large.argument_bytes - small.argument_bytes == 4 * 32 * 9
    assert large.total_bytes > small.total_bytes


@LINES
def test_reading_the_step_changes_no_variable(line):
    model = dense_model(line)
    model.compile(optimizer="adam", loss="mse")
    before = [tf.identity(weight) for weight in model.get_weights()]
    hlo.model_step_hlo(model, (tf.ones((4, 8)), tf.ones((4, 1))), optimized=True)
    for old, new in zip(before, model.get_weights(), strict=True):
        tf.debugging.assert_equal(old, new)
    assert int(model.optimizer.iterations) == 0


@LINES
def test_reading_the_step_leaves_the_loss_scale_as_it_is(line):
    made = line.mixed_precision if line is tf_keras else line.optimizers
    model = dense_model(line)
    optimizer = made.LossScaleOptimizer(line.optimizers.SGD(), initial_scale=8.0)
    model.compile(optimizer, "mse")
    x, y = tf.ones((4, 8)), tf.ones((4, 1))
    model.fit(x, y * float("inf"), verbose=0)  # halves it
    before = scales(model)
    hlo.model_step_hlo(model, (x, y), optimized=False)
    assert 4.0 in before
    assert scales(model) == before


def test_a_step_that_autograph_has_to_convert_is_read_too():
    def step(x):
        if x[0, 0] > 0:
            return x @ tf.transpose(x)
        return tf.zeros((3, 3))

    assert hlo.count_flops(hlo.step_hlo(step, tf.zeros((3, 8)), optimized=False)) == 2 * 3 * 8 * 3


@LINES
def test_one_replica_strategy_compiles_to_the_same(line):
    batch = (tf.zeros((32, 8)), tf.zeros((32, 1)))
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        mirrored = dense_model(line)
        mirrored.compile(optimizer="adam", loss="mse")
    plain = dense_model(line)
    plain.compile(optimizer="adam", loss="mse")
    sizes = [
        hlo.buffer_sizes(hlo.model_step_hlo(model, batch, optimized=True)).argument_bytes
        for model in (mirrored, plain)
    ]
    assert sizes[0] == sizes[1]


@LINES
def test_strings_are_not_compilable(line):
    del line
    with pytest.raises(hlo.NotCompilable) as caught:
        hlo.step_hlo(tf.strings.length, tf.constant(["a"]), optimized=True)
    assert "\n" not in str(caught.value)


def test_einsum_with_its_gradients():
    batch, length, width, heads, key = 2, 5, 6, 3, 4
    weights = tf.Variable(tf.zeros((width, heads, key)))

    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            projected = tf.einsum("blw,whk->blhk", x, weights)
            scores = tf.einsum("blhk,bmhk->bhlm", projected, projected)
        return tape.gradient(scores, [x, weights])

    flops = hlo.count_flops(hlo.step_hlo(step, tf.zeros((batch, length, width)), optimized=False))
    projection = 2 * batch * length * width * heads * key
    # The scores are bilinear: their gradient needs no forward product of their own.
    scores = 2 * batch * heads * length * length * key
    assert flops == 3 * projection + 2 * scores
