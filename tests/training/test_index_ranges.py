"""XLA accepts any index; a plan that compiles detects bad ones, as Keras' `fit` would."""

import numeric_models
import pytest
import tensorflow as tf
from model_cases import captured, compare
from numeric_models import ROWS, STEPS

from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.speedups.plan import TrainingPlan

pytestmark = pytest.mark.one_case

PLANS = {
    "xla": TrainingPlan(steps_per_execution=7, xla=True),
    "xla in slices": TrainingPlan(steps_per_execution=7, xla=True, micro_batches=3),
    "xla, recompute": TrainingPlan(steps_per_execution=7, xla=True, gradient_checkpointing=2),
    "xla_loop": TrainingPlan(steps_per_execution=7, xla_loop=True),
}


def embedding(keras):
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((2,)), layers.Embedding(5, 4), layers.Flatten(), layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    return model, numeric_models.integers(5, 2), numeric_models.floats(1)


def gather(keras):
    class Gather(keras.layers.Layer):
        def call(self, inputs):
            table = tf.reshape(tf.range(10.0), [2, 5])
            return tf.gather(table, inputs, axis=1)[0]

    inputs = keras.Input((2,), dtype="int32")
    model = keras.Model(inputs, keras.layers.Dense(1)(Gather()(inputs)))
    model.compile("sgd", "mse")
    return model, numeric_models.integers(5, 2), numeric_models.floats(1)


def labels(keras):
    layers = keras.layers
    model = keras.Sequential([layers.Input((4,)), layers.Dense(5)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss)
    return model, numeric_models.floats(4), numeric_models.integers(5, 1)


MODELS = {build.__name__: build for build in (embedding, gather, labels)}


def planted(keras, build, bad):
    """Returns the call of a `fit` whose twelfth step has a bad index."""
    model, features, targets = build(keras)
    indices = targets if build is labels else features
    if bad is not None:
        indices[11 * ROWS + 3, 0] = bad
    return captured(model, numeric_models.batched(features, targets), epochs=1)


# -6, because Keras 3 lets negative indices count from the end.
@pytest.mark.parametrize(("plan", "bad"), [*((plan, 5) for plan in PLANS), ("xla_loop", -6)])
def test_an_embedding(keras, plan, bad):
    with pytest.raises(tf.errors.InvalidArgumentError):
        planted(keras, embedding, bad).proceed()
    call = planted(keras, embedding, bad)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"is not in \[0, [5n]\).*found by"):
        FitLoop(call).fit(PLANS[plan])


@pytest.mark.parametrize("name", ["gather", "labels"])
@pytest.mark.parametrize("plan", ["xla", "xla_loop"])
def test_others(keras, name, plan):
    with pytest.raises(tf.errors.InvalidArgumentError):
        planted(keras, MODELS[name], 7).proceed()
    call = planted(keras, MODELS[name], 7)
    with pytest.raises(tf.errors.InvalidArgumentError, match="found by"):
        FitLoop(call).fit(PLANS[plan])


@pytest.mark.parametrize("name", MODELS)
def test_good_indices_train_as_always(keras, name):
    plans = (PLANS["xla"], PLANS["xla_loop"])
    compare(planted(keras, MODELS[name], None), plans, step_count=STEPS)


def test_a_step_with_a_detected_bad_index_changes_no_weights(keras):
    """Up to the end of the call with `xla_loop`, whose steps are one computation."""
    call = planted(keras, embedding, 5)
    with pytest.raises(tf.errors.InvalidArgumentError):
        FitLoop(call).fit(TrainingPlan(steps_per_execution=1, xla=True))
    assert int(call.model.optimizer.iterations) == 11
