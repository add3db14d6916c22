"""Metrics get the same values in the same order from every plan as from Keras' `fit`."""

import model_cases
import numeric_models
import pytest
import tensorflow as tf
from model_cases import assert_same_history, captured, compare, plain_fit

from tfx_perf.training.keras_api import either_keras
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.step.slices import slicing_obstacle

pytestmark = pytest.mark.one_case

PLANS = (
    TrainingPlan(steps_per_execution=7),
    TrainingPlan(steps_per_execution=7, xla=True),
    TrainingPlan(steps_per_execution=7, xla_loop=True),
    TrainingPlan(steps_per_execution=7, gradient_checkpointing=2),
)


def test_masked_predictions(keras):
    """Keras 3 and tf_keras weigh metrics by the mask of the predictions."""
    layers = keras.layers
    tokens = keras.Input((5,), dtype="int32")
    hidden = layers.Embedding(7, 4, mask_zero=True)(tokens)
    outputs = [layers.Dense(1, name="a")(hidden), layers.Dense(1, name="b")(hidden)]
    model = keras.Model(tokens, outputs)
    model.compile("sgd", {"a": "mse", "b": "mae"}, metrics={"a": ["mae"], "b": ["mse"]})
    targets = {"a": numeric_models.floats(5, 1), "b": numeric_models.floats(5, 1, seed=1)}
    data = numeric_models.batched(numeric_models.integers(7, 5), (targets["a"], targets["b"]))
    compare(captured(model, data), PLANS)


@pytest.mark.slow
def test_a_metric_that_reads_the_weights(keras):
    class Size(keras.metrics.Metric):
        def __init__(self, layer):
            super().__init__(name="size")
            self.layer = layer
            self.found = self.add_weight(name="found", initializer="zeros")

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.found.assign(tf.reduce_sum(tf.abs(tf.convert_to_tensor(self.layer.kernel))))

        def result(self):
            return self.found + 0.0

        def reset_state(self):
            self.found.assign(0.0)

    model, data = numeric_models.dense(keras)
    optimizer = keras.optimizers.SGD(0.2, momentum=0.9)
    model.compile(optimizer, "mse", metrics=[Size(model.layers[0])])
    assert not slicing_obstacle(model, either_keras.api_of(model))  # the step can be split
    fused = TrainingPlan(steps_per_execution=7, fused_update=True)
    compare(captured(model, data), (*PLANS, fused))


def test_results_are_computed_once_a_call(keras):
    computed = []

    class Noting(keras.metrics.MeanSquaredError):
        def result(self):
            def note(value):
                computed.append(value)
                return value

            return tf.ensure_shape(tf.numpy_function(note, [super().result()], tf.float32), [])

    model, data = model_cases.dense(keras), model_cases.regression()
    model.compile("sgd", "mse", metrics=[Noting()])
    call = captured(model, data, validation_data=data)
    computed.clear()
    FitLoop(call).fit(TrainingPlan(steps_per_execution=10))
    assert len(computed) < 10, "four calls of ten steps, and Keras itself asks at their ends"


@pytest.mark.parametrize("place", ["class", "instance"])
@pytest.mark.parametrize("names", [("loss", "mae"), ("other",)])
def test_a_custom_test_step(keras, place, names):
    def test_step(model, data):
        x, y = data
        error = tf.reduce_mean(tf.abs(model(x, training=False) - y))
        return {name: error * (index + 1) for index, name in enumerate(names)}

    kind = keras.Model
    if place == "class":
        kind = type("Own", (keras.Model,), {"test_step": test_step})
    inputs = keras.Input((4,))
    model = kind(inputs, keras.layers.Dense(1)(inputs))
    model.compile("sgd", "mse", metrics=["mae"])
    if place == "instance":
        model.test_step = lambda data: test_step(model, data)
    validation = model_cases.regression().take(7)
    call = captured(model, model_cases.regression(), epochs=3, validation_data=validation)
    expected, _ = plain_fit(call)
    history, _ = FitLoop(call).fit(TrainingPlan(steps_per_execution=5))
    assert_same_history(history, expected)
