"""Which calls count, where an epoch begins, and how turns are timed.

A plan that turns out slower than Keras' `fit` is abandoned, and nothing else changes.
"""

import mmap
import time
import tracemalloc

import model_cases
import numpy as np
import pytest
import tensorflow as tf
from model_cases import Snapshot, assert_same, captured, plain_fit
from tensorflow.python.ops import control_flow_util

from tfx_perf.core import interception
from tfx_perf.hardware import host
from tfx_perf.training import model_flops
from tfx_perf.training.fit.timer import StepTimer, percentile
from tfx_perf.training.keras_api import either_keras
from tfx_perf.training.loop import fit_steps, turns
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.measuring import memory
from tfx_perf.training.measuring.communication import CommunicationMeter
from tfx_perf.training.replicas.sync import Sync
from tfx_perf.training.speedups.plan import TrainingPlan

pytestmark = pytest.mark.each_choice


class Clock:
    """A clock set by the test, in place of `time.perf_counter`."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)


def run_epochs(timer, clock, *, epochs, step_seconds, steps_per_execution=10, pause_seconds=50.0):
    for epoch, calls in enumerate(epochs):
        timer.on_epoch_begin(epoch)
        for call in range(calls):
            timer.begin_call()
            clock.now += step_seconds(epoch, call)
            timer.end_call(steps_per_execution)
        clock.now += pause_seconds  # validation and callbacks


def test_warm_up_and_the_pause_between_epochs_do_not_count(monkeypatch):
    clock = Clock(monkeypatch)
    timer = StepTimer()
    run_epochs(
        timer,
        clock,
        epochs=[6, 6],
        step_seconds=lambda epoch, call: 30.0 if (epoch, call) == (0, 0) else 2.0,
    )
    assert timer.step_count == 120
    assert timer.compile_seconds() == pytest.approx(30.0 - 10 * 0.2)
    assert timer.first_call_end == 130.0
    assert [done for done, _ in timer.series()] == list(range(10, 130, 10))
    assert timer.series()[0][1] == 3.0
    assert timer.steady_seconds() == pytest.approx([0.2] * 10)  # without the first call of 20 steps


@pytest.mark.parametrize("pause_seconds", [0.0, 50.0])
def test_the_start_of_epochs_is_separated_from_their_steps(monkeypatch, pause_seconds):
    told = []

    class Told(CommunicationMeter):
        def on_warm(self, step_count):
            told.append(("warm", step_count))

        def on_epoch_start(self, step_count):
            told.append(("start", step_count))

        def on_epoch_started(self, step_count):
            told.append(("started", step_count))

    def timed(calls):
        clock = Clock(monkeypatch)
        timer = StepTimer(observer=Told())
        run_epochs(
            timer,
            clock,
            epochs=[calls] * 4,
            step_seconds=lambda epoch, call: 2.0 if call else 8.0,
            pause_seconds=pause_seconds,
        )
        return timer.mean_seconds_within_epochs(), timer.epoch_start_seconds()

    within, start = timed(5)
    assert within == pytest.approx(0.2)
    assert start == pytest.approx((3 * 0.8 + 15 * 0.2) / 18 - 0.2)  # without the first 20 steps
    assert told[:5] == [("start", 0), ("started", 10), ("warm", 20), ("start", 50), ("started", 60)]
    assert timed(1) == pytest.approx((0.8, 0.0))  # there are no other steps


def test_the_time_of_saving_checkpoints_does_not_count(monkeypatch):
    clock = Clock(monkeypatch)
    saved = 0.0
    timer = StepTimer()
    end_call = timer.end_call
    monkeypatch.setattr(timer, "end_call", lambda steps: end_call(steps, save_seconds=saved))

    def step_seconds(epoch, call):
        nonlocal saved
        saves = 7.0 if call in (0, 4) else 0.0
        saved += saves
        return 2.0 + saves

    run_epochs(timer, clock, epochs=[5, 5], step_seconds=step_seconds)
    assert [seconds for _, seconds in timer.series()] == pytest.approx([0.2] * 10)
    assert timer.mean_seconds() == pytest.approx(0.2)
    assert timer.part(2, 6).series()[-1][1] == pytest.approx(0.2)
    assert timer.host_share() == 0


def test_the_wait_between_calls_of_an_epoch_counts(monkeypatch):
    clock = Clock(monkeypatch)
    timer = StepTimer()
    timer.on_epoch_begin(0)
    for _ in range(3):
        timer.begin_call()
        clock.now += 1.0
        timer.end_call(1)
        clock.now += 4.0  # Keras waits for the next batch before on_train_batch_begin
    assert [seconds for _, seconds in timer.series()] == [1.0, 5.0, 5.0]
    assert timer.host_share() == pytest.approx(4.0 / 5.0)  # the host's time is that between steps


def test_cpu_time_is_that_of_steady_steps_inside_epochs(monkeypatch):
    clock, cpu = Clock(monkeypatch), 5.0
    monkeypatch.setattr(time, "process_time", lambda: cpu)
    timer = StepTimer()

    def step_seconds(epoch, call):
        nonlocal cpu
        cpu += 70.0 if call == 0 else 3.0  # tracing, then validation
        return 2.0

    run_epochs(timer, clock, epochs=[6, 6], step_seconds=step_seconds)
    assert timer.cpu_seconds() == pytest.approx(0.3)
    assert timer.part(0, 6).cpu_seconds() == pytest.approx(0.3)
    assert timer.part(0, 1).cpu_seconds() is None


def test_a_short_training_counts_the_few_steps_it_has(monkeypatch):
    clock = Clock(monkeypatch)
    timer = StepTimer()
    run_epochs(
        timer,
        clock,
        epochs=[4],
        steps_per_execution=1,
        step_seconds=lambda epoch, call: 1.0 if call else 9.0,
    )
    assert list(timer.steady_seconds()) == [1.0, 1.0, 1.0]
    assert timer.settled_seconds() == 1.0


def test_a_long_training_needs_little_memory():
    timer = StepTimer()
    timer.on_epoch_begin(0)
    calls = 100_000
    tracemalloc.start()
    for _ in range(calls):
        timer.begin_call()
        timer.end_call(1)
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held_bytes < 50 * calls
    assert timer.step_count == calls
    assert 400 <= len(timer.series(400)) <= 500
    assert timer.series(400)[1][0] == 1 + calls // 400


def test_a_timer_without_calls():
    timer = StepTimer()
    assert len(timer.steady_seconds()) == 0
    assert timer.series() == []
    assert timer.settled_seconds() == 0.0
    assert timer.compile_seconds() == 0.0
    assert timer.first_call_end is None
    assert percentile([], 90) is None
    assert timer.host_share() is None


def test_a_timer_ends_fit(keras):
    call = interception.capture_fit(
        lambda: model_cases.dense(keras).fit(model_cases.regression(), epochs=5, verbose=0)
    )
    loop = FitLoop(call)
    _, timer = loop.try_out(
        TrainingPlan(steps_per_execution=1),
        model_cases.regression(),
        step_count=6,
        epochs=5,
        stop_when=lambda timer: timer.step_count == 3,
    )
    assert timer.step_count == 3
    assert loop.timer is None  # removed from the loop


def test_the_time_of_callbacks_is_not_the_train_functions(keras):
    slow = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.05))
    call = interception.capture_fit(
        lambda: model_cases.dense(keras).fit(
            model_cases.regression(), epochs=2, verbose=0, callbacks=[slow]
        )
    )
    _, timer = FitLoop(call).fit(TrainingPlan(steps_per_execution=1))
    assert timer.host_share() > 0.5
    assert np.median(timer.steady_seconds()) > 0.05  # the time of a step includes it


def test_turns_run_the_steps_that_the_schedule_requests(keras, monkeypatch):
    calls, clock = [], Clock(monkeypatch)

    def function(name, seconds):
        def run(iterator):
            calls.append(name)
            next(iterator)
            clock.now += seconds
            return {"loss": 0.0}

        return run

    blocks = []

    def schedule():
        for _ in range(2):
            blocks.append((yield turns.Turn(function("quick", 0.03), 1)))
            blocks.append((yield turns.Turn(function("slow", 0.18), 3)))

    model = model_cases.dense(keras)
    model.fit(model_cases.regression(), verbose=0)  # otherwise Keras 3 has no metrics to report
    callback = turns.Turns(model, schedule(), sync=Sync()).callback(either_keras.api_of(model))
    data = model_cases.regression().repeat()
    model.fit(data, steps_per_epoch=10**9, verbose=0, callbacks=[callback])
    changes = [name for name, after in zip(calls, [*calls[1:], None], strict=True) if name != after]
    assert changes == ["quick", "slow", "quick", "slow"]
    assert calls.count("slow") == 2 * turns.BLOCK_CALLS
    assert blocks == pytest.approx([0.03, 0.06, 0.03, 0.06])  # per step


def test_the_memory_peak_is_that_since_the_reset():
    memory.reset_peak_memory()
    before = host.resident_peak_bytes()
    with mmap.mmap(-1, 2**26) as held:  # not by malloc, which might have kept as much from before
        for _ in range(64):
            held.write(b"1" * 2**20)
        during = host.resident_peak_bytes()
    assert 0.9 * 2**26 < during - before < 3 * 2**26
    assert host.resident_peak_bytes() > during - 2**20  # the kernel's memory counter is coarse
    memory.reset_peak_memory()
    assert host.resident_peak_bytes() < during - 0.5 * 2**26


def test_flops_without_a_batch_have_a_reason(keras):
    flops = model_flops.count_flops(model_cases.dense(keras), None)
    assert flops.per_step is None
    assert "no batch" in flops.note


STEPS = 60
XLA = TrainingPlan(steps_per_execution=1, xla=True)


def slow_under_xla(keras):
    """A model with a layer that takes much longer if XLA compiles it."""

    class Slow(keras.layers.Layer):
        def call(self, inputs):
            if control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()):
                square = tf.tile(inputs[:1, :1], (500, 500))
                for _ in range(4):
                    square = tf.linalg.matmul(square, square) * 1e-3
                return inputs + 0.0 * tf.reduce_mean(square)
            return inputs

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((8,)), Slow(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    inputs = np.random.default_rng(1).normal(size=(16, 8)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((inputs, inputs[:, :1])).batch(16).repeat()
    return model, data


@pytest.fixture
def loop_and_weights(keras):
    model, data = slow_under_xla(keras)
    call = captured(model, data, epochs=1, steps_per_epoch=STEPS)
    return FitLoop(call), model, plain_fit(call)[1]


@pytest.mark.one_case
def test_a_slow_plan_is_abandoned(loop_and_weights):
    loop, model, expected = loop_and_weights
    _, timer = loop.fit(XLA, plain_step_seconds=1e-6)
    assert "dropped during training" in loop.speed_watch.note
    steps = [seconds for _, seconds in timer.series()]
    assert np.median(steps[-15:]) < 0.8 * np.median(steps[5:20])
    assert timer.step_count == STEPS
    assert_same(Snapshot(model), expected, rtol=1e-4)


@pytest.mark.one_case
def test_a_plan_is_kept_if_plain_steps_are_no_faster(loop_and_weights, monkeypatch):
    loop, model, expected = loop_and_weights
    monkeypatch.setattr(fit_steps, "_timed", lambda run, *arguments: (run(*arguments), 0.01))
    # As if the machine had become slower since the trials, for both.
    loop.fit(TrainingPlan(steps_per_execution=1), plain_step_seconds=1e-6)
    assert loop.speed_watch.note is None
    assert_same(Snapshot(model), expected, rtol=1e-4)


def test_a_kept_promise_costs_no_plain_step(loop_and_weights, monkeypatch):
    loop, model, expected = loop_and_weights
    plain_steps = []
    monkeypatch.setattr(loop.functions, "plain_step", lambda: plain_steps.append)
    loop.fit(TrainingPlan(steps_per_execution=1), plain_step_seconds=60.0)
    assert not plain_steps
    assert_same(Snapshot(model), expected, rtol=1e-4)
