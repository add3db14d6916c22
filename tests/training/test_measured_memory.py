"""Leaks of real trainings; memory that the process held before is not part of a training's."""

import time

import model_cases
import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from model_cases import captured

from tfx_perf.config import PerfConfig
from tfx_perf.config.gate import DEFAULT_RULES
from tfx_perf.hardware import host
from tfx_perf.memory import growth
from tfx_perf.report import training as training_report
from tfx_perf.training.measuring import memory
from tfx_perf.training.measuring.memory import MemoryBaseline
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.tuning.families import TuningMemory

pytestmark = pytest.mark.each_choice

MEBIBYTE = 2**20
NEARLY = 24 * MEBIBYTE  # tolerance for other allocations

host_memory_counts = pytest.mark.skipif(
    bool(tf.config.list_physical_devices("GPU")), reason="there it is the allocator that counts"
)

_SETTINGS = PerfConfig.from_dict({"training": {"tuning_seconds": 0}})


@pytest.fixture
def short_window(monkeypatch):
    """Lets trainings of a few seconds show a leak."""
    monkeypatch.setattr(growth, "_FEWEST_SECONDS", 1.0)
    monkeypatch.setattr(memory, "_SAMPLING_SECONDS", 0.01)
    monkeypatch.setattr(memory, "_RETURN_SECONDS", 0.05)
    monkeypatch.setattr(memory, "_RETURN_SHARE", 0.0)
    monkeypatch.setattr(memory, "_RETURN_RATIO", 2)


def trained(keras, *, kept_bytes, cached=False):
    """Trains for about 3 s and keeps these bytes after each of 300 steps; returns the record."""
    kept = []

    def keep(batch, logs=None):
        time.sleep(0.01)
        kept.append(np.ones(kept_bytes, np.uint8))

    data = model_cases.regression()
    data = data.cache().repeat() if cached else data.repeat()
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=keep)
    session = TrainingSession(_SETTINGS)
    arguments = {"steps_per_epoch": 150, "epochs": 2, "callbacks": [callback]}
    session.fit(captured(model_cases.dense(keras), data, **arguments))
    return session.record


@pytest.mark.usefixtures("short_window")
def test_a_callback_that_keeps_batches_is_found(keras, tmp_path):
    record = trained(keras, kept_bytes=2**20)
    assert record.figures()["memory_leak"] == 1
    assert record.figures()["memory_growth_bytes_per_step"] == pytest.approx(2**20, rel=0.5)
    assert "memory_leak" in [item.code for item in record.advice]
    assert "a leak" in training_report.report_on(record).render()
    assert DEFAULT_RULES["memory_leak"].max < 1
    record.write(tmp_path / "record.json")
    assert type(record).read(tmp_path / "record.json").figures() == record.figures()


@pytest.mark.slow
@pytest.mark.usefixtures("short_window")
def test_a_callback_that_keeps_nothing_is_not_reported():
    record = trained(tf_keras, kept_bytes=1)
    assert record.figures()["memory_leak"] == 0
    assert "memory_leak" not in [item.code for item in record.advice]
    assert "no leak" in training_report.report_on(record).render()


@pytest.mark.slow
@pytest.mark.usefixtures("short_window")
def test_an_input_that_may_be_filling_its_cache_is_not_judged():
    record = trained(tf_keras, kept_bytes=2**20, cached=True)
    assert record.figures()["memory_leak"] is None
    assert record.memory_series
    assert "to tell whether memory leaks" in training_report.report_on(record).render()


def test_a_long_watch_keeps_few_samples(monkeypatch):
    monkeypatch.setattr(memory, "_SAMPLING_SECONDS", 0.001)
    monkeypatch.setattr(memory, "_MOST_SAMPLES", 20)
    held = np.ones(2**26, np.uint8)
    with memory.watching() as watch:
        time.sleep(0.5)
    assert 5 <= len(watch.samples) <= 20
    seconds = [when for when, _ in watch.samples]
    assert seconds == sorted(seconds)
    assert seconds[-1] - seconds[0] > 0.3
    assert all(size > held.nbytes for _, size in watch.samples)


def test_memory_is_returned_seldom(monkeypatch):
    monkeypatch.setattr(memory, "_SAMPLING_SECONDS", 0.001)
    monkeypatch.setattr(memory, "_RETURN_SECONDS", 0.1)
    began = time.monotonic()
    with memory.watching() as watch:
        time.sleep(0.5)
    assert 1 <= len(watch.settled) <= (time.monotonic() - began) / 0.1
    assert set(watch.settled) < set(watch.samples)


def block(mebibytes):
    return np.ones(mebibytes * MEBIBYTE, np.uint8)


@host_memory_counts
def test_a_training_takes_later_memory_except_leftovers():
    MemoryBaseline.now()  # imports
    ballast = block(256)
    held = MemoryBaseline.now()
    own = block(128)
    peak_bytes = host.anonymous_memory_bytes()
    taken = held.taken_beside(peak_bytes, leftover_bytes=0)
    assert taken == pytest.approx(own.nbytes, abs=NEARLY)
    assert held.taken_beside(peak_bytes, leftover_bytes=taken // 2) == taken - taken // 2
    assert held.taken_beside(held.anonymous_bytes, leftover_bytes=ballast.nbytes) == 0


@host_memory_counts
def test_the_figure_excludes_memory_that_the_process_held_before(keras):
    ballast = block(256)
    session = TrainingSession(_SETTINGS)
    session.fit(captured(model_cases.dense(keras), model_cases.regression()))
    assert 0 < session.record.figures()["training_memory_bytes"] < ballast.nbytes / 2


@host_memory_counts
def test_what_was_freed_is_not_in_use():
    before = MemoryBaseline.now().used_bytes
    pieces = [bytes(5000) for _ in range(256 * MEBIBYTE // 5000)]
    between = pieces[::97]  # kept, so that the system gets the others back in pieces
    assert MemoryBaseline.now().used_bytes == pytest.approx(before + 256 * MEBIBYTE, abs=NEARLY)
    del pieces
    assert MemoryBaseline.now().used_bytes == pytest.approx(before, abs=NEARLY)
    del between


def test_a_plan_is_not_charged_for_its_own_leftovers():
    leftovers = TuningMemory()
    xla = [TrainingPlan(steps_per_execution=steps, xla=True) for steps in (1, 5)]
    with leftovers.of([PLAIN_FIT]):
        of_plain = block(64)
    with leftovers.of(xla):
        of_xla = block(192)
    assert leftovers.beside(PLAIN_FIT) == pytest.approx(of_xla.nbytes, abs=NEARLY)
    for steps in (1, 5, 50):  # they share one traced function
        plan = TrainingPlan(steps_per_execution=steps, xla=True)
        assert leftovers.beside(plan) == pytest.approx(of_plain.nbytes, abs=NEARLY)
    del of_plain, of_xla
    assert leftovers.beside(PLAIN_FIT) == 0
