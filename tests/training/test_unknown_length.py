"""Data of unknown length: an epoch's end is found in the middle of a call."""

import itertools

import model_cases
import pytest
import tensorflow as tf
from model_cases import Snapshot, assert_same, assert_same_history, captured

from tfx_perf.training.loop.eligibility import obstacle
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.speedups.plan import TrainingPlan

pytestmark = pytest.mark.each_choice

X, Y = model_cases.features(4)[:4], model_cases.features(1, seed=1)[:4]
SPEC = tf.TensorSpec(X.shape, tf.float32), tf.TensorSpec(Y.shape, tf.float32)
STEPS = TrainingPlan(steps_per_execution=4)
FUSED = TrainingPlan(steps_per_execution=4, fused_update=True)
XLA_LOOP = TrainingPlan(steps_per_execution=4, xla_loop=True)
TRAININGS = [
    (model_cases.dense, STEPS),
    (model_cases.dense, FUSED),
    (model_cases.dense, XLA_LOOP),
    (model_cases.custom_train_step, STEPS),
    (model_cases.subclass, STEPS),
]
LENGTHS = [(7, 7, 7), (8, 8, 8), (7, 9, 7), (8, 10, 9), (7, 5, 7), (2, 2)]


def data_of(lengths):
    """Returns data whose passes have these numbers of batches."""
    passes = itertools.cycle(lengths)
    return tf.data.Dataset.from_generator(
        lambda: itertools.repeat((X, Y), next(passes)), output_signature=SPEC
    )


def told_to(keras, told):
    """Returns a callback that notes the steps of the optimizer, as a learning rate sees them."""

    def note(epoch, logs):
        told.append((epoch, sorted(logs), int(callback.model.optimizer.iterations.numpy())))

    callback = keras.callbacks.LambdaCallback(on_epoch_end=note)
    return callback


# 8 batches fill the last call; later passes may be longer or shorter than the first one.
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize(("make", "plan"), TRAININGS)
def test_steps_callbacks_and_results_are_those_of_keras_fit(keras, lengths, make, plan):
    model, outcomes = make(keras), []
    before = None
    for kind in (None, plan):
        told = []
        call = captured(
            model, data_of(lengths), epochs=len(lengths), callbacks=[told_to(keras, told)]
        )
        if before is None:
            FitLoop(call).prepare()
            before = Snapshot(model)
        before.restore()
        model.train_function = None
        loop = FitLoop(call)
        assert obstacle(call, loop) is None
        history = call.proceed() if kind is None else loop.fit(kind).history
        outcomes.append((told, history, Snapshot(model)))
    (expected, its_history, its_state), (found, history, state) = outcomes
    assert found == expected
    assert_same_history(history, its_history)
    assert_same(state, its_state)


def test_the_progress_bar_counts_the_steps_that_were_run(keras, capsys):
    call = captured(model_cases.dense(keras), data_of((7, 7)), epochs=2, verbose=2)
    FitLoop(call).fit(STEPS)
    assert capsys.readouterr().out.count("7/7") == 2


def test_unknown_shapes_of_logs_are_refused_before_a_step_runs(keras):
    class Own(keras.Sequential):
        def train_step(self, data):
            logs = super().train_step(data)
            return {**logs, "rows": tf.where(tf.random.uniform([4]) > 0.5)[:, 0]}

    model = Own(model_cases.dense(keras).layers)
    model.compile("sgd", "mse")
    call = captured(model, data_of((7,)))
    with pytest.raises(ValueError, match="shapes are known"):
        FitLoop(call).fit(STEPS)
    assert int(model.optimizer.iterations.numpy()) == 0
