"""After trials in the training process everything is restored, also outside of the model."""

import sys
import threading
import traceback

import numpy as np
import pytest
import tensorflow as tf
from model_cases import captured, settings_that_try
from tensorflow.python.summary.summary_iterator import summary_iterator

from tfx_perf.training.loop import turns
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.tuning import choosing, initial_state

pytestmark = pytest.mark.each_choice

X = np.arange(512, dtype="float32").reshape(128, 4) / 512


def call_of(keras, kind=None, *, optimizer="adam", data=None):
    """Returns a `fit` of a small model, by default on endless data."""
    inputs = keras.Input((4,))
    model = (kind or keras.Model)(inputs, keras.layers.Dense(1)(inputs))
    model.compile(optimizer=optimizer, loss="mse")
    if data is not None:
        return captured(model, data)
    data = tf.data.Dataset.from_tensor_slices((X, X[:, :1])).batch(16).repeat()
    return captured(model, data, steps_per_epoch=50)


def tried(call):
    """Makes trials of a few quick plans; returns their outcome."""
    return [str(trial.plan) for trial in choice_of(call).trials]


def choice_of(call):
    """Makes trials of a few quick plans; returns the choice."""
    settings = settings_that_try(tuning_seconds=60)
    return choosing.choose_and_restore(call, FitLoop(call), settings=settings)


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    monkeypatch.setattr(turns, "BLOCK_SECONDS", 0.02)


def test_counts_and_draws_of_a_step_outside_of_its_model_are_restored(keras):
    count = tf.Variable(0, dtype=tf.int64)
    generator = tf.random.Generator.from_seed(1)

    class Counting(keras.Model):
        def train_step(self, *given):
            count.assign_add(1)
            generator.normal([])
            return super().train_step(*given)

    call = call_of(keras, Counting)
    count.assign(0)
    before = generator.state.numpy()
    assert len(tried(call)) > 1
    assert int(count) == 0
    assert np.array_equal(generator.state, before)


def test_data_that_cannot_be_tried_may_change_in_the_next_run_of_the_same_code(keras):
    def rows():
        yield from zip(X, X[:, :1], strict=True)

    specs = tf.TensorSpec(4), tf.TensorSpec(1)
    data = tf.data.Dataset.from_generator(rows, output_signature=specs).batch(16).repeat()
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    choice = choice_of(captured(model, data, steps_per_epoch=50))
    assert choice.plan_reason == choosing.NEEDS_OWN_PROCESS
    assert not choice.is_settled


def test_a_python_metric_sees_only_the_users_steps(keras):
    seen = []

    def metric(targets, predictions):
        count = tf.numpy_function(lambda a: (seen.append(len(a)), np.float32(0))[1], [targets],
                                  tf.float32)  # fmt: skip
        return tf.reduce_mean(predictions, -1) + 0 * tf.ensure_shape(count, [])

    call = call_of(keras)
    call.model.compile("adam", "mse", metrics=[metric])
    choice = choice_of(call)
    assert choice.plan_reason == choosing.NEEDS_OWN_PROCESS
    assert not seen
    call.proceed()
    assert len(seen) == 2 * 50


def test_summaries_are_those_of_the_users_steps_alone(keras, tmp_path):
    writer = tf.summary.create_file_writer(str(tmp_path))

    class Summarized(keras.Model):
        def train_step(self, *given):
            logs = super().train_step(*given)
            with writer.as_default(step=self.optimizer.iterations):
                tf.summary.scalar("loss", logs["loss"])
            return logs

    call = call_of(keras, Summarized)
    with writer.as_default(), tf.summary.record_if(True):
        choice = choice_of(call)
    writer.flush()
    assert "summaries" in choice.plan_reason
    (file,) = tmp_path.iterdir()
    assert not [value for event in summary_iterator(str(file)) for value in event.summary.value]


def test_code_that_exits_under_a_plan_has_failed_there(keras):
    class Exiting(keras.Model):
        def train_step(self, *given):
            if any("/training/step/" in frame.filename for frame in traceback.extract_stack()):
                sys.exit("not under a plan")
            return super().train_step(*given)

    choice = choice_of(call_of(keras, Exiting, optimizer="sgd"))
    assert choice.plan.is_plain_fit
    (reason,) = {trial.reason for trial in choice.trials if trial.status == "failed"}
    assert reason == "SystemExit: not under a plan"


def test_a_cache_file_is_written_by_the_training_alone(keras, tmp_path):
    rows = np.tile(X, (100, 1))
    data = tf.data.Dataset.from_tensor_slices((rows, rows[:, :1]))
    data = data.cache(str(tmp_path / "cache")).batch(16)
    call = call_of(keras, data=data)
    assert len(tried(call)) > 1
    assert not list(tmp_path.iterdir())
    list(data)  # to the end, so that the file is complete
    assert (tmp_path / "cache.index").exists()
    assert len(tried(call)) > 1  # reads the existing file


def test_nothing_is_tried_here_if_too_much_is_held_outside_of_the_model(keras, monkeypatch):
    monkeypatch.setattr(initial_state, "_MOST_BYTES", 100)
    large = tf.Variable(tf.zeros([1000]))
    assert tried(call_of(keras)) == []
    del large


def test_values_that_a_strategy_keeps_per_device_are_saved_per_device():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        whole = tf.Variable(
            1.0,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
    (part,) = whole.values
    found = initial_state.variables_outside(beside=[])
    assert any(each is part for each in found)
    assert not any(each is whole for each in found)
    found = initial_state.variables_outside(beside=[whole])
    assert not any(each is part for each in found)


def test_another_thread_may_build_a_tuple_while_variables_are_searched_for(monkeypatch):
    building, searching, built = threading.Event(), threading.Event(), []

    def items():
        building.set()
        searching.wait(10)
        yield from range(50)  # more than the tuple has room for

    def components(variable):
        searching.set()
        thread.join(10)
        return ()

    thread = threading.Thread(target=lambda: built.append(tuple(items())))
    thread.start()
    building.wait(10)
    variable = tf.Variable(1.0)
    monkeypatch.setattr(initial_state, "components", components)
    outside = initial_state.variables_outside(beside=[])
    assert any(each is variable for each in outside)
    assert built == [tuple(range(50))]
