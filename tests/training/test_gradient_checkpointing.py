"""Activations that are recomputed: the same bits, in less memory."""

import numeric_models
import numpy as np
import peak_memory
import pytest
import tensorflow as tf
from model_cases import Snapshot, captured

from tests import processes
from tfx_perf.training.keras_api.random_layers import SaveableRandomLayers
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.speedups import gradient_checkpointing
from tfx_perf.training.speedups.gradient_checkpointing import Activation
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan

pytestmark = pytest.mark.one_case


@pytest.fixture
def nothing_is_small(monkeypatch):
    monkeypatch.setattr(gradient_checkpointing, "_SMALL_BYTES", 0)


def dropout(keras):
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((4,)),
            *(
                layer
                for _ in range(3)
                for layer in (layers.Dense(8, activation="tanh"), layers.Dropout(0.5))
            ),
            layers.BatchNormalization(),
            layers.Dense(1),
        ]
    )
    model.compile("sgd", "mse")
    return model, numeric_models.batched(numeric_models.floats(4), numeric_models.floats(1, seed=1))


def trained(keras, plan):
    keras.utils.set_random_seed(3)
    model, data = dropout(keras)
    call = captured(model, data, epochs=1)
    with SaveableRandomLayers(model).installed():  # otherwise tf_keras draws other masks
        FitLoop(call).fit(plan)
    return Snapshot(model)


@pytest.mark.parametrize("xla", [False, True])
def test_dropout_and_moving_averages_are_those_of_plain_fit(keras, xla, nothing_is_small):
    # XLA draws other random numbers from the same seeds.
    expected = trained(keras, TrainingPlan(steps_per_execution=7, xla=True) if xla else PLAIN_FIT)
    found = trained(keras, TrainingPlan(steps_per_execution=7, gradient_checkpointing=3, xla=xla))
    for value, other in zip(found.values, expected.values, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-5, atol=1e-5 * np.abs(other).max())


def test_masks_are_recomputed_and_equal_bit_for_bit(keras, nothing_is_small):
    keras.utils.set_random_seed(3)
    layer, scale = keras.layers.Dropout(0.5), tf.Variable(tf.ones([64, 64]))
    x = tf.random.normal([64, 64])
    layer(x)
    with SaveableRandomLayers(keras.Sequential([layer])).installed():

        @tf.function
        def step():
            with tf.GradientTape() as tape:
                dropped = layer(tf.math.multiply(scale, x), training=True)
                loss = tf.reduce_sum(tf.tanh(tf.sin(dropped)))
            with tf.control_dependencies([loss]):
                seed = tf.ones_like(loss)
            gradient = tape.gradient(loss, scale, output_gradients=seed)
            gradient_checkpointing.InSegments(2)(seed, xla=False)
            return dropped, gradient

        dropped, gradient = step()
        types = [op.type for op in step.get_concrete_function().graph.get_operations()]
    # Once in the forward pass, once in the recomputation; the seed is drawn once.
    assert types.count("StatelessRandomUniformV2") == 2
    assert types.count("AssignVariableOp") + types.count("RngReadAndSkip") == 1
    # The mask of `dropped` comes from the forward pass, that of `gradient` from the copy.
    np.testing.assert_array_equal(dropped != 0, gradient != 0)
    assert 0.4 < np.mean(dropped == 0) < 0.6


def peak_bytes(package, **plan):
    child = processes.python(
        peak_memory.__file__,
        package,
        TrainingPlan(steps_per_execution=1, **plan).model_dump_json(),
        # oneDNN's workspace would depend on the processor.
        environment={"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_ENABLE_ONEDNN_OPTS": "0"},
    )
    return int(processes.last_line(child))


@pytest.mark.slow
def test_the_peak_of_memory_falls(keras):
    assert peak_bytes(keras.__name__, gradient_checkpointing="auto") < 0.4 * peak_bytes(
        keras.__name__
    )


@pytest.mark.slow
def test_the_peak_of_memory_falls_with_xla():
    assert peak_bytes("keras", xla=True, gradient_checkpointing=8) < 0.7 * peak_bytes(
        "keras", xla=True
    )


def chain(length, *, size=1.0, wide=()):
    """Each tensor is read by the next operation, as in a model without branches."""
    return [
        Activation(made=at, last_used=at + 1, size=3 * size if at in wide else size, is_saved=True)
        for at in range(length)
    ]


def test_segments_have_equal_shares():
    assert gradient_checkpointing.cut(chain(12), segments=3) == [4, 8]
    assert gradient_checkpointing.cost(chain(12), [4, 8]) == 2 + 4  # two cross, four stay
    assert gradient_checkpointing.cost(chain(12), []) == 12


def test_cuts_avoid_wide_tensors():
    (at,) = gradient_checkpointing.cut(chain(12, wide={5}), segments=2)
    assert at in {5, 7}  # at 6, near the middle, the tensor that was made at 5 would cross


def test_auto_uses_about_the_square_root_of_the_length():
    activations = chain(100)
    cuts = gradient_checkpointing.cut(activations, segments="auto")
    assert 7 <= len(cuts) + 1 <= 14
    assert gradient_checkpointing.cost(activations, cuts) <= 20


def test_a_plan_with_segments_is_named_and_invalid_counts_are_refused():
    assert str(TrainingPlan(steps_per_execution=1, gradient_checkpointing=4)) == (
        "1 step per execution, gradient checkpointing (4 segments)"
    )
    assert str(TrainingPlan(steps_per_execution=1, gradient_checkpointing="auto")) == (
        "1 step per execution, gradient checkpointing (auto)"
    )
    for fields in (
        {"gradient_checkpointing": 2},
        {"steps_per_execution": 1, "gradient_checkpointing": 1},
    ):
        with pytest.raises(ValueError):
            TrainingPlan(**fields)
