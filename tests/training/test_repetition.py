"""A step that is run many times is in the graph once."""

import dataclasses
import time

import model_cases
import pytest
import tensorflow as tf
from model_cases import captured

from tfx_perf.core import interception
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.step.steps import repeated

STEPWISE = TrainingPlan(steps_per_execution=7)
COMPILED = TrainingPlan(steps_per_execution=7, xla_loop=True)


@dataclasses.dataclass
class CountingLoss:
    """A mean squared error that counts how often its code runs."""

    count: int = 0

    def __call__(self, y: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        self.count += 1
        return tf.reduce_mean(tf.square(y - y_pred), axis=-1)


def model_with(loss, keras):
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("adam", loss, metrics=["mae"])
    return model


def function_and_iterator(plan, loss, keras):
    """Returns a plan's function for a model with all its variables, not yet traced."""
    data = model_cases.regression()
    function = FitLoop(captured(model_with(loss, keras), data)).functions.of(plan)
    loss.count = 0
    return function, iter(data)


@pytest.mark.parametrize("slices", [1, 2])
def test_a_step_is_traced_once_for_any_number_of_runs(keras, slices):
    loss = CountingLoss()
    plan = STEPWISE.model_copy(update={"micro_batches": slices})
    function, iterator = function_and_iterator(plan, loss, keras)
    function.trace(iterator)
    function.run(iterator, 7)
    assert loss.count == 1


def test_a_step_that_makes_variables_is_traced_once_more(keras):
    loss = CountingLoss()
    data = model_cases.regression()
    call = interception.capture_fit(lambda: model_with(loss, keras).fit(data, verbose=0))
    function = FitLoop(call).functions.of(STEPWISE)
    function.trace(iter(data))
    assert loss.count == 2


def test_steps_compiled_together_are_traced_once_besides_single_steps(keras):
    loss = CountingLoss()
    function, iterator = function_and_iterator(COMPILED, loss, keras)
    function.trace(iterator)
    assert loss.count == 1
    function.run(iterator, 7)
    assert loss.count == 2


def test_an_evaluation_step_is_traced_once(keras):
    loss = CountingLoss()
    data = model_cases.regression()
    call = captured(model_with(loss, keras), data, epochs=1, validation_data=data)
    loop = FitLoop(call)
    loop.functions.of(STEPWISE).trace(iter(data))
    loss.count = 0
    loop.fit(STEPWISE)
    assert loss.count == 1


@pytest.mark.parametrize("shape", [[], None])
def test_a_step_begins_after_the_previous_one_has_ended(shape):
    """So that data that end do not cut a step short."""
    ended = []

    def slow_at_first(value):
        time.sleep(0 if value else 0.3)
        ended.append(int(value))
        return value

    @tf.function
    def run(iterator, count):
        def step(*unused):
            # Not stateful, since TensorFlow itself keeps stateful operations in order.
            value = tf.numpy_function(slow_at_first, [next(iterator)], tf.int64, stateful=False)
            return tf.ensure_shape(value, shape), ()

        return repeated(step, count)[0]

    with pytest.raises(tf.errors.OutOfRangeError):
        run(iter(tf.data.Dataset.range(4)), tf.constant(5))
    assert ended == [0, 1, 2, 3]
