"""Advice follows from figures, and none is given without a cause."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from model_cases import dense, regression

from tfx_perf.config import PerfConfig
from tfx_perf.core import interception, statistics
from tfx_perf.tf_internals.graphs import QuickFunction
from tfx_perf.training import advice, session
from tfx_perf.training.record import XlaAccount
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.tuning.choice import TrialRecord

pytestmark = pytest.mark.each_choice


def trained(keras, data, **arguments):
    settings = PerfConfig.from_dict({"training": {"tuning_seconds": 0}})
    training = session.TrainingSession(settings)
    with interception.intercepting_fit(training.fit):
        dense(keras).fit(data, verbose=0, **arguments)
    return training.record


@functools.cache
def trained_for_long(keras):
    """Returns the record of a real training, as if it had been long."""
    found = trained(keras, regression())
    steps = {
        "step_time_p99_seconds": found.step_time.value,
        "garbage_collection_seconds": 0.0,
        "python_overhead_ratio": 0.05,  # so small a model is bound by the host
    }
    return found.model_copy(update={**steps, "fit_time_seconds": 1e6})


@pytest.fixture
def record(keras):
    return trained_for_long(keras)


def codes(record, data=None):
    return [item.code for item in advice.advise(record, data)]


def test_a_flawless_training_needs_none(record):
    assert codes(record, regression()) == []


@pytest.mark.parametrize(("checked_share", "advised"), [(0.4, True), (0.9, False)])
def test_a_step_that_takes_longer_than_with_batches_in_memory(record, checked_share, advised):
    checked = statistics.median_interval([checked_share * record.step_time.value])
    plan = TrainingPlan(steps_per_execution=50)
    trials = (TrialRecord(plan=plan, status="chosen", reason="", step_time=checked),)
    found = record.model_copy(update={"plan": plan, "trials": trials})
    assert ("input_bound" in codes(found, regression())) is advised
    measured = found.model_copy(update={"input_wait_ratio": 0.0})
    assert "input_bound" not in codes(measured, regression())


def test_advice_for_a_busy_host_depends_on_the_steps_of_a_call(record):
    busy = record.model_copy(update={"python_overhead_ratio": 0.2})
    (plain,) = advice.advise(busy, regression())
    assert "More steps can be run in a call" in plain.message
    planned = busy.model_copy(update={"plan": TrainingPlan(steps_per_execution=50)})
    (planned,) = advice.advise(planned, regression())
    assert "A call has 50 steps already: look for slow callbacks" in planned.message


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"input_wait_ratio": 0.3}, ["input_bound"]),
        ({"trace_count": 3}, ["many_shapes"]),
        ({"xla": XlaAccount(compiled_shapes=("8x4", "7x4", "6x4"))}, ["many_shapes"]),
        ({"python_overhead_ratio": 0.2}, ["host_bound"]),
        ({"trial_time_seconds": 3e5}, ["long_trials"]),
        ({"compile_time_seconds": 3e5}, ["long_compilation"]),
        ({"step_time_p99_seconds": 1e3}, ["uneven_steps"]),
        ({"garbage_collection_seconds": 1e5}, ["garbage_collection"]),
    ],
)
def test_each_figure_has_its_advice(record, fields, expected):
    assert codes(record.model_copy(update=fields), regression()) == expected


def test_widths_of_large_layers_are_named_with_the_next_even_ones(keras, record):
    layers = keras.layers
    words = layers.Input((8,), dtype="int64")
    hidden = layers.Dense(1000, name="up")(layers.Embedding(999, 100)(words))
    hidden = layers.Dense(50, name="small")(layers.Dense(512, name="even")(hidden))
    model = keras.Model(words, layers.Dense(10)(hidden))
    (item,) = advice.advise(record, regression(), weights=model.trainable_weights)
    assert item.code == "alignment"
    assert ": up/kernel 1,000 (1,024). " in item.message


def test_only_finished_trials_are_not_repeated(record):
    long = record.model_copy(update={"trial_time_seconds": 3e5, "is_settled": True})
    (item,) = advice.advise(long, None)
    assert "The next run uses this plan without trials" in item.message
    (item,) = advice.advise(long.model_copy(update={"is_settled": False}), None)
    assert "The next run makes trials again" in item.message
    assert "uses this plan again" not in item.message


def from_python():
    return tf.data.Dataset.from_generator(
        lambda: iter([1.0]), output_signature=tf.TensorSpec([], tf.float32)
    )


def through_python():
    add = lambda value: tf.numpy_function(np.square, [value], tf.float32)  # noqa: E731
    return tf.data.Dataset.from_tensors(1.0).map(add).prefetch(1)


@pytest.mark.parametrize("data", [from_python, through_python])
def test_python_in_the_input_counts_if_training_waits(record, data):
    waiting = record.model_copy(update={"input_wait_ratio": 0.3})
    assert codes(waiting, data()) == ["input_bound", "python_in_input"]
    assert codes(record, data()) == []


def test_tuned_input_is_not_sent_to_the_tuner(record):
    waiting = record.model_copy(update={"input_wait_ratio": 0.3})
    for key, remedy in (
        ({}, "in a pipeline tune it with InputTuner; in a script"),
        ({"input": "columns"}, "(columns); its report says what else was tried"),
        ({"input": "default"}, "InputTuner has left it as it is; its report says why"),
    ):
        (item,) = advice.advise(waiting.model_copy(update={"key": key}), None)
        assert item.code == "input_bound"
        assert remedy in item.message


def test_the_record_has_the_figures_that_advice_uses(keras):
    record = trained(keras, regression(), epochs=3)
    assert record.setup_time_seconds > 0
    assert record.step_time_p99_seconds >= record.step_time_p90_seconds
    assert record.garbage_collection_seconds >= 0
    figures = record.figures()
    assert figures["setup_time_seconds"] == record.setup_time_seconds


def test_traces_are_counted():
    function = QuickFunction(lambda x: x + x, reduce_retracing=True)
    for dtype in (tf.float32, tf.float64, tf.int32, tf.float32):
        function(tf.zeros(2, dtype))
    assert function.trace_count == 3
