"""Keras' own ways of counting steps, in whatever combination of lengths.

Our functions are told where `epochs` begin; the `fit_steps` know how many a call has,
and note the first batch on its way.
"""

import itertools
import random

import model_cases
import numpy as np
import pytest
import tensorflow as tf
from model_cases import Snapshot, assert_same_history, captured, session_with, without_autotune

from tfx_perf.training.loop import Loop
from tfx_perf.training.loop.eligibility import obstacle
from tfx_perf.training.optimizations.plan import PLAIN_FIT, TrainingPlan

pytestmark = pytest.mark.each_choice

LENGTHS = (1, 5, 10, 25, "endless", "unknown 7", "unknown 12")
STEPS_PER_EPOCH = (None, 4, 5, 25)
PER_EXECUTION = (1, 2, 5, 10)
EPOCHS = (1, 3)
FOUND = [(25, 25, 10, 2), ("endless", 25, 10, 2), (25, 4, 10, 3), ("unknown 12", 25, 10, 3)]
SOME = 1


def combinations():
    drawn = list(itertools.product(LENGTHS, STEPS_PER_EPOCH, PER_EXECUTION, EPOCHS))
    possible = [one for one in drawn if not (one[0] == "endless" and one[1] is None)]
    random.Random(0).shuffle(possible)
    slow = [pytest.param(one, marks=pytest.mark.slow) for one in possible[SOME:]]
    return [*FOUND, *possible[:SOME], *slow]


def data_of(length):
    x, y = model_cases.features(4)[:4], model_cases.features(1, seed=1)[:4]
    data = without_autotune(tf.data.Dataset.from_tensors((x, y)).repeat())
    if length == "endless":
        return data
    if isinstance(length, str):
        return data.take(int(length.split()[1])).filter(lambda x, y: True)
    return data.take(length)


def ends_early(length, steps, epochs):
    """Whether there are data for fewer steps than `fit` is asked for."""
    if length == "endless" or steps is None:
        return False
    batches = int(length.split()[1]) if isinstance(length, str) else length
    return batches < steps * epochs


def outcome(model, train):
    try:
        history = train()
    except Exception as error:
        history = type(error)
    return history, int(model.optimizer.iterations.numpy()), model.get_weights()


@pytest.mark.one_case
@pytest.mark.usefixtures("no_flops")
@pytest.mark.parametrize("case", combinations(), ids=str)
def test_steps_and_history_are_those_of_plain_fit(keras, case):
    length, steps, per_execution, epochs = case
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", steps_per_execution=per_execution)
    call = captured(model, data_of(length), steps_per_epoch=steps, epochs=epochs)
    before = Snapshot(model)
    expected = outcome(model, call.proceed)
    for plan in PLAIN_FIT, TrainingPlan(steps_per_call=3), TrainingPlan(steps_per_call=50):
        loop = Loop(call)
        if not plan.is_plain_fit and obstacle(call, loop):
            continue
        before.restore()
        model.train_function = model.test_function = None
        found = outcome(model, lambda plan=plan: session_with(plan).fit(call))
        # Where the data end in a call, Keras may count the step that found none any more.
        uncounted = epochs if ends_early(length, steps, epochs) else 0
        assert expected[1] - uncounted <= found[1] <= expected[1], plan
        if isinstance(expected[0], type):
            assert found[0] is expected[0]
            continue
        assert_same_history(found[0], expected[0])
        for one, other in zip(found[2], expected[2], strict=True):  # every step moves them
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_callbacks_are_told_of_a_call_by_its_last_step(keras):
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    told = []
    callback = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda step, logs: told.append(step)
    )
    call = captured(model, data_of(10), epochs=2, callbacks=[callback])
    Loop(call).fit(TrainingPlan(steps_per_call=4))
    assert told == 2 * [3, 7, 9]  # else a progress bar would show 12/10
