"""A complete session: the trials, the choice, the training and its record."""

import re
import time

import model_cases
import numpy as np
import pytest
import tensorflow as tf
from model_cases import Snapshot, assert_same, assert_same_history, captured, plain_fit

from tfx_perf.config import PerfConfig
from tfx_perf.core import statistics, workers
from tfx_perf.hardware import host
from tfx_perf.report import training as training_report
from tfx_perf.training import ended_training
from tfx_perf.training.loop import fit_steps, turns
from tfx_perf.training.record import TrainingRecord
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.step import steps
from tfx_perf.training.tuning.choice import TRIALS_OFF, PlanChoice, TrialRecord

pytestmark = pytest.mark.one_case


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    monkeypatch.setattr(turns, "BLOCK_SECONDS", 0.04)


ENDLESS = {"steps_per_epoch": 300, "epochs": 2}


def session_with(*, budget=300.0, xla=False, worker_count=None, **training):
    return TrainingSession(
        PerfConfig.from_dict(
            {
                "training": {"tuning_seconds": budget, **training},
                "compilation": {"enabled": xla},
                "distribution": {"workers": worker_count},
                "schedule": {"expected_runs": 10**6},
            }
        )
    )


def by_plan(record):
    return {str(trial.plan): trial for trial in record.trials}


@pytest.fixture
def plant(long_calls, monkeypatch):
    """Returns a function that replaces the step of every plan, but not that of Keras' `fit`."""

    def replace(step):
        retrace = steps.MultiStep.retrace

        def planted(self):
            retrace(self)
            if self._method == "train_step":
                self._step = step(self._model)

        monkeypatch.setattr(steps.MultiStep, "retrace", planted)

    return replace


def small(keras, **arguments):
    return captured(model_cases.dense(keras), model_cases.regression().repeat(), **arguments)


@pytest.mark.usefixtures("long_calls")
def test_several_steps_a_call_win_for_a_small_model_and_change_nothing(keras, tmp_path):
    data = model_cases.regression()
    call = small(keras, validation_data=data, **ENDLESS)
    expected, trained = plain_fit(call)
    session = session_with(xla=True)
    started = time.perf_counter()
    history = session.fit(call)
    wall_seconds = time.perf_counter() - started
    # The trials have changed neither weights nor optimizer nor metrics.
    rtol = 1e-3 if session.record.plan.uses_xla else 1e-4
    assert_same_history(history, expected, rtol=rtol)
    assert_same(Snapshot(call.model), trained, rtol=rtol)

    record = session.record
    trials = by_plan(record)
    assert 1 < record.plan.steps_per_execution <= 50
    assert record.trace_count == 1  # as many as in the next run, which has no trials
    assert trials["Keras fit"].status == "reference"
    assert trials[str(record.plan)].status == "chosen"
    assert trials[str(record.plan)].speedup.low > 1.02
    assert {"Keras fit", "10 steps per execution, fused update"} < set(trials)
    figures = record.figures()
    assert figures["train_step_count"] == 600
    assert figures["plan_speedup_ratio"] == trials[str(record.plan)].speedup.value
    assert figures["examples_per_second"] == pytest.approx(8 / record.mean_step_time_seconds)
    assert figures["train_loss"] == pytest.approx(history.history["loss"][-1])
    assert figures["validation_loss"] == pytest.approx(history.history["val_loss"][-1])
    assert 0 <= figures["input_wait_ratio"] < 1
    assert 0 < figures["mfu_ratio"] < 1
    assert 0 < figures["trial_time_seconds"] < figures["time_to_first_step_seconds"]
    assert figures["time_to_first_step_seconds"] < figures["fit_time_seconds"] <= wall_seconds
    assert 0 < figures["compile_share_ratio"] < 1
    assert figures["peak_rss_bytes"] > 50e6
    assert figures["peak_memory_share_ratio"] == pytest.approx(
        figures["peak_memory_bytes"] / host.memory_limit_bytes()
    )
    # Dense 4 to 8 and 8 to 1: forward, weight gradients, and the gradient of the inner inputs.
    macs = 8 * (4 * 8 * 2 + 8 * 1 * 3)
    assert figures["flops_per_step"] == 2 * macs

    record.write(tmp_path / "record.json")
    again = TrainingRecord.read(tmp_path / "record.json")
    assert again == record
    assert again.figures() == figures


def test_without_a_budget_keras_fit_is_only_measured(keras):
    call = small(keras, steps_per_epoch=30)
    session = session_with(budget=0)
    session.fit(call)
    record = session.record
    assert record.plan.is_plain_fit
    assert record.plan_reason == TRIALS_OFF
    assert record.train_step_count == 60
    assert record.step_time.low <= record.step_time.value <= record.step_time.high
    assert record.compile_time_seconds > 0
    assert record.figures()["plan_speedup_ratio"] is None
    assert record.figures()["xla_compile_count"] is None
    assert record.figures()["xla_enabled"] == int(bool(call.model.jit_compile))


def test_a_worker_with_an_unshared_model_is_refused(keras, monkeypatch):
    config = workers.configs_of(["a:1", "b:1"])["worker 1"]
    monkeypatch.setenv(workers.VARIABLE, config)
    session = session_with(budget=0, worker_count=2)
    session.fit(small(keras, steps_per_epoch=30))
    (note,) = session.record.notes
    assert note.startswith("TF_CONFIG names 2 workers, but the model was built under no strategy")


def test_a_plan_that_raises_is_not_chosen(keras, plant):
    def broken(model):
        def step(data):
            raise RuntimeError("planted")

        return step

    plant(broken)
    call = small(keras, steps_per_epoch=30)
    expected, _ = plain_fit(call)
    session = session_with()
    assert_same_history(session.fit(call), expected)
    assert session.record.plan.is_plain_fit
    trial = by_plan(session.record)["30 steps per execution, fused update"]
    assert (trial.status, trial.reason) == ("failed", "RuntimeError: planted")


@pytest.mark.parametrize("seconds", [0.002, 0.05])
def test_a_plan_that_is_slower_is_not_chosen(keras, plant, seconds):
    def slow(model):
        def step(data):
            x, y = data
            wait = tf.py_function(lambda: time.sleep(seconds), [], [])
            with tf.control_dependencies([wait]):
                return model.train_step((tf.identity(x), y))

        return step

    plant(slow)
    session = session_with(steps_per_execution=(5,))
    session.fit(small(keras, steps_per_epoch=30))
    assert session.record.plan.is_plain_fit
    trial = by_plan(session.record)["5 steps per execution, fused update"]
    assert trial.status == "slower"
    assert "times the step time of Keras fit" in trial.reason


def needs_autograph(keras):
    class Choosing(keras.layers.Layer):
        def call(self, inputs, training=None):
            if tf.reduce_mean(inputs) > 100.0:
                inputs = -inputs
            for _ in tf.range(2):
                inputs = inputs * 1.5
            return inputs

    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(1)(Choosing()(inputs)))
    model.compile(optimizer="sgd", loss="mse")
    return model


@pytest.mark.slow
def test_layers_that_need_autograph_train_with_a_plan():
    import tf_keras

    data = model_cases.regression()
    call = captured(needs_autograph(tf_keras), data.repeat(), validation_data=data, **ENDLESS)
    expected, trained = plain_fit(call)
    session = session_with(xla=True, budget=240)  # AutoGraph is slow beside other work
    assert_same_history(session.fit(call), expected, rtol=1e-4)
    assert_same(Snapshot(call.model), trained, rtol=1e-4)
    assert 1 < session.record.plan.steps_per_execution <= 50


def test_the_users_error_is_the_one_that_keras_fit_raises():
    keras = pytest.importorskip("keras")

    def metric(targets, predictions):  # half built, it raises a different error in the next trace
        return tf.numpy_function(lambda *_: np.float32(0), [targets, predictions], tf.float32)

    def call():
        made = small(keras, steps_per_epoch=300)
        made.model.compile("sgd", "mse", metrics=[metric])
        return made

    with pytest.raises(ValueError) as raised:
        call().proceed()
    with pytest.raises(ValueError, match=re.escape(str(raised.value))):
        session_with().fit(call())


def test_an_abandoned_plan_keeps_no_promise(keras, monkeypatch):
    monkeypatch.setattr(fit_steps, "_CLEARLY_SLOWER", 0.0)
    times = (statistics.median_interval([each]) for each in (2e-3, 1e-3))
    reference, chosen = (
        TrialRecord(plan=plan, status=status, reason="why", step_time=step_time, speedup=speedup)
        for plan, status, step_time, speedup in zip(
            (PLAIN_FIT, TrainingPlan(steps_per_execution=5)), ("reference", "chosen"), times,
            (None, statistics.median_interval([2.0])), strict=True,
        )
    )  # fmt: skip
    choice = PlanChoice(
        plan=chosen.plan, plan_reason="it won", trials=(reference, chosen), is_settled=True
    )
    session = TrainingSession(PerfConfig(), choose=lambda call, loop: choice)
    session.fit(small(keras, steps_per_epoch=300))
    record = session.record
    assert record.plan == chosen.plan
    assert record.plan_reason.startswith("dropped during training, because its step took")
    assert not record.is_settled
    assert record.plan_saving_seconds is record.figures()["plan_speedup_ratio"] is None
    page = training_report.report_on(record).render()
    assert "5 steps per execution: dropped during training" in page.replace("\n", " ")
    assert "should save" not in page


@pytest.mark.slow
def test_a_failing_measurement_does_not_end_the_training(keras, monkeypatch):
    session = session_with(budget=0)
    monkeypatch.setattr(ended_training.model_flops, "count_flops", lambda *_: 1 / 0)
    history = session.fit(captured(model_cases.dense(keras), model_cases.regression()))
    assert len(history.history["loss"]) == 2
    assert session.record is None


def test_a_training_without_a_plan_is_not_guarded(keras, tmp_path):
    call = small(keras, steps_per_epoch=30)
    expected, _ = plain_fit(call)
    session = session_with(checkpoint_folder=str(tmp_path / "kept"))
    assert_same_history(session.measure_only(call), expected)
    assert session.record.train_step_count == 60
    assert session.record.plan.is_plain_fit
    assert not session.record.trials
    assert not (tmp_path / "kept").exists()
