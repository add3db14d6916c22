"""Properties of dropout's masks, with XLA and without."""

import keras as keras3
import numpy as np
import pytest
import tensorflow as tf
from model_cases import Snapshot, captured

from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan

pytestmark = pytest.mark.one_case

PLANS = {
    "Keras fit": PLAIN_FIT,
    "xla": TrainingPlan(steps_per_execution=5, xla=True),
    "xla_loop": TrainingPlan(steps_per_execution=5, xla_loop=True),
}
RATE, UNITS, STEPS = 0.3, 500, 10


def masks(keras):
    """Returns a `fit` after which the model's only weights tell which units were kept, and when.

    The gradient of a weight is the mask, so that after steps with the learning rates 1, 2, 4, ...
    the weight's binary digits are the masks of the steps.
    """
    inputs = keras.Input((1,))
    units = keras.layers.Dense(UNITS, use_bias=False, kernel_initializer="zeros", name="units")
    model = keras.Model(inputs, keras.layers.Dropout(RATE, seed=7)(units(inputs)))

    class Doubling(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return -(2.0 ** tf.cast(step, "float32"))

        def get_config(self):
            return {}

    def total(y_true, y_pred):
        return UNITS * (1 - RATE) * y_pred  # Keras takes the mean of it

    model.compile(keras.optimizers.SGD(Doubling()), loss=total)
    ones = np.ones((STEPS, 1), "float32")
    data = tf.data.Dataset.from_tensor_slices((ones, ones)).batch(1)
    return captured(model, data, epochs=1)


def drawn(call, plan):
    """Returns the masks of all steps under a plan, shape [steps, units]."""
    before = Snapshot(call.model)
    FitLoop(call).fit(plan)
    digits = call.model.get_layer("units").get_weights()[0][0].round().astype("int64")
    before.restore()
    call.model.train_function = call.model.test_function = None
    return np.stack([digits >> step & 1 for step in range(STEPS)])


@pytest.mark.parametrize("plan", PLANS)
def test_the_rate_holds_and_every_step_has_its_own_mask(keras, plan):
    found = drawn(masks(keras), PLANS[plan])
    share, deviation = found.mean(), np.sqrt(RATE * (1 - RATE) / found.size)
    assert abs(share - (1 - RATE)) < 4 * deviation
    agreement = np.mean(found[1:] == found[:-1])
    by_chance = RATE**2 + (1 - RATE) ** 2
    assert abs(agreement - by_chance) < 0.05


def test_in_keras_3_masks_are_those_of_plain_fit_without_xla_and_others_with_it():
    call = masks(keras3)
    expected = drawn(call, PLAIN_FIT)
    np.testing.assert_array_equal(drawn(call, TrainingPlan(steps_per_execution=5)), expected)
    compiled = drawn(call, PLANS["xla"])
    assert np.mean(compiled == expected) < 0.7
    # The first step of a `CompiledCall` is not compiled.
    np.testing.assert_array_equal(drawn(call, PLANS["xla_loop"])[1:], compiled[1:])
