"""Leaks of real trainings."""

import time

import model_cases
import numpy as np
import pytest
import tf_keras
from model_cases import captured

from tfx_perf.config import PerfConfig
from tfx_perf.memory import growth
from tfx_perf.report import training_report
from tfx_perf.settings.gate_defaults import RULES
from tfx_perf.training.measuring import memory_watch
from tfx_perf.training.session import TrainingSession

pytestmark = pytest.mark.each_choice

_SETTINGS = PerfConfig.from_dict({"training": {"trial_budget_seconds": 0}})


@pytest.fixture
def short_window(monkeypatch):
    """Lets trainings of a few seconds tell."""
    monkeypatch.setattr(growth, "_FEWEST_SECONDS", 1.0)
    monkeypatch.setattr(memory_watch, "_SAMPLING_SECONDS", 0.01)
    monkeypatch.setattr(memory_watch, "_RETURN_SECONDS", 0.05)
    monkeypatch.setattr(memory_watch, "_RETURN_SHARE", 0.0)
    monkeypatch.setattr(memory_watch, "_RETURN_RATIO", 2)


def trained(keras, *, kept_bytes, cached=False):
    """Trains for some 3 s and keeps as many bytes after each of 300 steps; returns the record."""
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
    assert RULES["memory_leak"].max < 1
    record.write(tmp_path / "record.json")
    assert type(record).read(tmp_path / "record.json").figures() == record.figures()


@pytest.mark.slow
@pytest.mark.usefixtures("short_window")
def test_one_that_keeps_nothing_is_not():
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
    monkeypatch.setattr(memory_watch, "_SAMPLING_SECONDS", 0.001)
    monkeypatch.setattr(memory_watch, "_MOST_SAMPLES", 20)
    held = np.ones(2**26, np.uint8)
    with memory_watch.watching() as watch:
        time.sleep(0.5)
    assert 5 <= len(watch.samples) <= 20
    seconds = [when for when, _ in watch.samples]
    assert seconds == sorted(seconds)
    assert seconds[-1] - seconds[0] > 0.3
    assert all(size > held.nbytes for _, size in watch.samples)


def test_memory_is_returned_seldom(monkeypatch):
    monkeypatch.setattr(memory_watch, "_SAMPLING_SECONDS", 0.001)
    monkeypatch.setattr(memory_watch, "_RETURN_SECONDS", 0.1)
    began = time.monotonic()
    with memory_watch.watching() as watch:
        time.sleep(0.5)
    assert 1 <= len(watch.settled) <= (time.monotonic() - began) / 0.1
    assert set(watch.settled) < set(watch.samples)
