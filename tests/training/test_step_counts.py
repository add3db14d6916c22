"""Keras' own ways of counting steps, with many combinations of lengths.

A training with missing or extra steps raises; see `epochs.StepCounts` and `Guard`. Our functions
receive the start of `epochs`; the `fit_steps` know the number of steps of a call,
and note the first batch as it passes.
"""

import itertools
import random

import model_cases
import numpy as np
import pytest
import tensorflow as tf
from model_cases import Snapshot, assert_same_history, captured, session_with, without_autotune

from tfx_perf.core import errors, interception
from tfx_perf.training.loop.eligibility import obstacle
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.recovery.checkpoint_store import CheckpointStore
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.step.steps import MultiStep

pytestmark = [pytest.mark.each_choice, pytest.mark.usefixtures("no_flops", "saves_at_once")]

LENGTHS = (1, 5, 10, 25, "endless", "unknown 7", "unknown 12")
STEPS_PER_EPOCH = (None, 4, 5, 25)
PER_EXECUTION = (1, 2, 5, 10)
EPOCHS = (1, 3)
FOUND = [
    (25, 25, 10, 2),
    ("endless", 25, 10, 2),
    (25, 4, 10, 3),
    ("unknown 12", 25, 10, 3),
    ("unknown 7", None, 1, 3),
    ("unknown 12", None, 1, 3),
    ("unknown 7", 25, 1, 3),
]
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
    """Returns whether the data have fewer steps than requested of `fit`."""
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
@pytest.mark.parametrize("case", combinations(), ids=str)
def test_steps_and_history_are_those_of_keras_fit(keras, case):
    length, steps, per_execution, epochs = case
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", steps_per_execution=per_execution)
    call = captured(model, data_of(length), steps_per_epoch=steps, epochs=epochs)
    before = Snapshot(model)
    expected = outcome(model, call.proceed)
    for plan in (
        PLAIN_FIT,
        TrainingPlan(steps_per_execution=3),
        TrainingPlan(steps_per_execution=50),
    ):
        loop = FitLoop(call)
        if not plan.is_plain_fit and obstacle(call, loop):
            continue
        before.restore()
        model.train_function = model.test_function = None
        found = outcome(model, lambda plan=plan: session_with(plan).fit(call))
        # If the data end within a call, Keras may count the step that found no more of them.
        uncounted = epochs if ends_early(length, steps, epochs) else 0
        assert expected[1] - uncounted <= found[1] <= expected[1], plan
        if isinstance(expected[0], type):
            assert found[0] is expected[0]
            continue
        assert_same_history(found[0], expected[0])
        for one, other in zip(found[2], expected[2], strict=True):  # every step changes them
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_callbacks_get_the_last_step_of_a_call(keras):
    model = model_cases.linear(keras)
    told = []
    callback = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda step, logs: told.append(step)
    )
    call = captured(model, data_of(10), epochs=2, callbacks=[callback])
    FitLoop(call).fit(TrainingPlan(steps_per_execution=4))
    assert told == 2 * [3, 7, 9]  # otherwise a progress bar would show 12/10


PLANS = [TrainingPlan(steps_per_execution=4), TrainingPlan(steps_per_execution=4, xla_loop=True)]


def session_in(plan, folder=None):
    training = {"checkpoint_folder": str(folder), "checkpoint_every_steps": 4} if folder else {}
    return session_with(plan, training=training)


def takes_the_train_function_away(keras, from_epoch):
    """Silently restores Keras' own train function."""

    class Takes(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == from_epoch:
                make = keras.Model.make_train_function
                while hasattr(make, "__wrapped__"):
                    make = make.__wrapped__
                self.model.train_function = None
                self.model.train_function = make(self.model) or self.model.train_function

    return Takes()


@pytest.mark.parametrize("has_folder", [False, True])
def test_a_removed_train_function_is_installed_again(keras, has_folder, tmp_path):
    session = session_in(PLANS[0], folder=tmp_path if has_folder else None)
    model, given = model_cases.dense(keras), [takes_the_train_function_away(keras, 1)]
    with interception.intercepting_fit(session.fit):
        model.fit(model_cases.regression(), epochs=3, verbose=0, callbacks=given)
    assert session.record.train_step_count == 3 * model_cases.BATCHES
    assert int(model.optimizer.iterations.numpy()) == 3 * model_cases.BATCHES


@pytest.mark.parametrize("where", [None, "validation"])
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_an_optimizer_that_counts_differently_is_an_error(keras, plan, where):
    class Steps(keras.callbacks.Callback):
        def on_test_begin(self, logs=None):
            self.model.optimizer.iterations.assign_add(5)  # not steps of the training

        def on_train_batch_end(self, batch, logs=None):
            if not where:
                self.model.optimizer.iterations.assign_add(1)

    model = model_cases.dense(keras)
    validation = {"validation_data": model_cases.regression()} if where else {}
    call = captured(
        model, model_cases.regression(), epochs=2, verbose=0, callbacks=[Steps()], **validation
    )
    if where:
        FitLoop(call).fit(plan)
        return
    with pytest.raises(errors.StepCountError, match="optimizer_steps=13"):
        FitLoop(call).fit(plan)


def test_graphs_that_run_fewer_steps_are_an_error_and_nothing_is_saved(
    keras, tmp_path, monkeypatch
):
    run, calls = MultiStep.run, []

    def run_less(self, iterator, steps, **given):
        calls.append(steps)
        return run(self, iterator, steps if len(calls) < 8 else 1, **given)

    monkeypatch.setattr(MultiStep, "run", run_less)
    session = session_in(TrainingPlan(steps_per_execution=2), tmp_path)
    with (
        interception.intercepting_fit(session.fit),
        pytest.raises(errors.StepCountError, match="computed_steps=.*, optimizer_steps="),
    ):
        model_cases.dense(keras).fit(model_cases.regression(), epochs=3, verbose=0)
    (folder,) = (tmp_path / "fit-0").iterdir()
    _, checkpoint = CheckpointStore(folder).latest()
    assert checkpoint.step <= sum(calls[:7])


@pytest.mark.parametrize("name", ["stops", "own_step", "trains", "ends_early", "slices"])
def test_unusual_step_counts_of_keras_fit_are_no_error(keras, name):
    class Own(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if name == "stops":
                self.model.stop_training = True
            if name == "trains":
                self.model.train_on_batch(np.ones((2, 4)), np.ones((2, 1)))

        def on_epoch_end(self, epoch, logs=None):
            if name == "trains":
                self.model.fit(np.ones((2, 4)), np.ones((2, 1)), verbose=0)

    class Twice(keras.Sequential):
        def train_step(self, data):
            super().train_step(data)
            return super().train_step(data)

    model = model_cases.dense(keras)
    if name == "own_step":
        model = Twice(model.layers)
        model.compile("sgd", "mse")
    data = model_cases.regression()
    given = {}
    if name == "ends_early":
        data, given = data.repeat(2), {"steps_per_epoch": 8}
    plan = TrainingPlan(steps_per_execution=4, micro_batches=2 if name == "slices" else 1)
    call = captured(model, data, epochs=3, verbose=0, callbacks=[Own()], **given)
    FitLoop(call).fit(plan)
