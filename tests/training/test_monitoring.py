"""Metrics that a running training serves to Prometheus, scraped from real trainings.

The server is `monitoring.serving`, its answers an `Exposition`.
"""

import array
import contextlib
import importlib
import logging
import re
import socket
import threading
import time
import types
import urllib.request

import model_cases
import numpy as np
import prometheus_client
import pytest
import tensorflow as tf
from model_cases import captured, without_autotune
from prometheus_client.parser import text_string_to_metric_families

from tests import sayings
from tests.ports import free_port
from tfx_perf.config import PerfConfig
from tfx_perf.core import metrics
from tfx_perf.training import session
from tfx_perf.training.fit.timer import StepTimer
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.measuring import collector
from tfx_perf.training.monitoring import serving
from tfx_perf.training.monitoring.live_training import RECENT_CALLS, LiveTraining
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.tuning.choice import PlanChoice, plain

pytestmark = [pytest.mark.one_case, pytest.mark.usefixtures("no_flops")]

STEPS, BATCH_SIZE = 2 * model_cases.BATCHES, model_cases.BATCH_SIZE
PLAN = TrainingPlan(steps_per_execution=2)


@pytest.fixture
def port():
    return free_port()


def text_at(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return answer.read().decode()


def parsed(text):
    """Returns help texts and values by name, and the labels of the info metric."""
    helps, values, labels = {}, {}, {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            helps[sample.name] = family.documentation
            values[sample.name] = sample.value
            if sample.name.endswith("_info"):
                labels = sample.labels
    return helps, values, labels


def is_served(port):
    with contextlib.suppress(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        return True
    return False


def looked_at(call, loop):
    return LiveTraining(
        call, loop, choice=plain("a test"), recovery=None, totals=lambda: None, started=0.0
    )


class Scraped:
    """A `fit` that is scraped at the end of each epoch."""

    def __init__(self, keras, port, *, model=None, data=None, **arguments):
        self.texts = []
        callback = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs=None: self.texts.append(text_at(port))
        )
        self.call = captured(
            model or model_cases.dense(keras),
            model_cases.regression() if data is None else data,
            callbacks=[callback],
            **arguments,
        )


def session_with(port, *, plan=PLAIN_FIT, **choice):
    made = session.TrainingSession(
        PerfConfig.from_dict(
            {"training": {"tuning_seconds": 0}, "monitoring": {"metrics_port": port}}
        )
    )
    if not plan.is_plain_fit:
        made._choose = lambda call, loop: PlanChoice(plan=plan, plan_reason="given", **choice)
    return made


def fixed_batches():
    """Returns data with a fixed batch size."""
    x, y = model_cases.features(4), model_cases.features(1, seed=1)
    data = tf.data.Dataset.from_tensor_slices((x, y))
    return without_autotune(data.batch(BATCH_SIZE, drop_remainder=True))


def unguarded(monkeypatch):
    monkeypatch.setattr(session, "recovery_obstacle", lambda call, loop: "none is wanted")


def observed(keras, port, monkeypatch):
    """Keras' `fit`, without a plan."""
    unguarded(monkeypatch)
    return session_with(port), Scraped(keras, port, data=fixed_batches())


def planned(keras, port, monkeypatch):
    """A plan without a guard; the trials know the size of a batch."""
    unguarded(monkeypatch)
    choice = {"fit": {"batch_size": str(BATCH_SIZE)}, "input_wait_ratio": 0.25}
    return session_with(port, plan=PLAN, **choice), Scraped(keras, port)


def guarded(keras, port, monkeypatch):
    return session_with(port), Scraped(keras, port, data=fixed_batches())


@pytest.mark.parametrize("branch", [observed, planned, guarded])
def test_served_figures_are_those_of_the_later_record(keras, port, monkeypatch, branch):
    training, scraped = branch(keras, port, monkeypatch)
    history = training.fit(scraped.call)
    assert len(scraped.texts) == 2
    helps, values, labels = parsed(scraped.texts[-1])
    record = training.record
    figures = record.figures()
    for key in ("step_time_seconds", "examples_per_second", "python_overhead_ratio", "train_loss"):
        assert values[f"tfx_perf_{key}"] == pytest.approx(figures[key]), key
        assert helps[f"tfx_perf_{key}"].startswith(metrics.CATALOGUE[key].description)
    first = values["tfx_perf_time_to_first_step_seconds"]
    assert first == pytest.approx(figures["time_to_first_step_seconds"])
    assert values["tfx_perf_train_steps_total"] == STEPS == record.train_step_count
    assert values["tfx_perf_train_examples_total"] == STEPS * BATCH_SIZE
    assert values["tfx_perf_oom_steps_total"] == 0
    assert values["tfx_perf_learning_rate"] == pytest.approx(0.001)
    assert values.get("tfx_perf_input_wait_ratio") == record.input_wait_ratio
    pauses = values["tfx_perf_garbage_collection_seconds_total"]
    assert 0 <= pauses <= record.garbage_collection_seconds
    # The kernel's memory counter is coarse.
    assert 50e6 < values["tfx_perf_peak_rss_bytes"] < record.peak_rss_bytes + 2**21
    share = values["tfx_perf_peak_memory_bytes"] / record.device_memory_bytes
    assert values["tfx_perf_peak_memory_share_ratio"] == pytest.approx(share)
    assert labels == {
        "plan": str(record.plan),
        "precision": "float32",
        "model": scraped.call.model.name,
        "strategy": record.environment["strategy"],
        "keras": scraped.call.model.__module__.split(".")[0],
    }
    # The counters and the loss after the first epoch.
    before = parsed(scraped.texts[0])[1]
    assert before["tfx_perf_train_steps_total"] == STEPS / 2
    assert before["tfx_perf_train_loss"] == pytest.approx(history.history["loss"][0])
    begun, ended = (each["tfx_perf_last_progress_timestamp_seconds"] for each in (before, values))
    assert 0 < ended - begun < record.fit_time_seconds


@pytest.mark.parametrize(
    "kind", ["keras.optimizers", "tf_keras.optimizers", "tf_keras.optimizers.legacy"]
)
def test_a_schedule_of_the_learning_rate(port, kind):
    keras, optimizers = importlib.import_module(kind.split(".")[0]), importlib.import_module(kind)
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, decay_steps=10, decay_rate=0.5)
    model = model_cases.dense(keras)
    model.compile(optimizer=optimizers.SGD(schedule), loss="mse")
    scraped = Scraped(keras, port, model=model)
    session_with(port).fit(scraped.call)
    rates = [parsed(text)[1]["tfx_perf_learning_rate"] for text in scraped.texts]
    # tf_keras reports the rate of the last step, the others that of the next one.
    assert rates == pytest.approx([0.05, 0.025], rel=0.08)


def test_nothing_is_served_unless_configured(keras, monkeypatch):
    started = []
    monkeypatch.setattr(
        prometheus_client, "start_http_server", lambda *args, **_: started.append(args)
    )
    session_with(None).fit(captured(model_cases.dense(keras), model_cases.regression()))
    assert started == []


@pytest.mark.slow
def test_a_waiting_caller_learns_the_progress_and_where_metrics_are(keras, port, monkeypatch):
    monkeypatch.setattr(serving, "_SECONDS", 0.001)
    made = session_with(port)
    call = captured(model_cases.dense(keras), model_cases.regression(), epochs=40)
    total = 40 * model_cases.BATCHES
    with sayings.kept() as said:
        made.fit(call)
    address = f"; metrics at http://0.0.0.0:{port}/metrics"
    assert f"training{address}" in said
    told = rf"training: ([\d,]+) of {total:,} steps done{re.escape(address)}"
    counted = [re.fullmatch(told, text) for text in said]
    counts = [int(found[1].replace(",", "")) for found in counted if found]
    assert counts == sorted(counts)
    assert f"training: tracing, compiling and the first steps{address}" in said
    assert 0 < counts[0] < counts[-1] <= total
    assert made.record.train_step_count == total


def test_the_port_is_free_after_a_failure(keras, port):
    served = []

    def fail(epoch, logs=None):
        served.append(is_served(port))
        raise RuntimeError("planted")

    callback = keras.callbacks.LambdaCallback(on_epoch_end=fail)
    call = captured(model_cases.dense(keras), model_cases.regression(), callbacks=[callback])
    with pytest.raises(RuntimeError, match="planted"):
        session_with(port).fit(call)
    assert served == [True]
    assert not is_served(port)


def warnings_of(caplog):
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and ".monitoring." in record.name
    ]


def test_a_port_in_use_only_causes_a_warning(keras, port, caplog):
    training = session_with(port)
    with socket.create_server(("0.0.0.0", port)):
        training.fit(captured(model_cases.dense(keras), model_cases.regression()))
    assert training.record.train_step_count == STEPS
    (warning,) = warnings_of(caplog)
    assert warning.startswith(f"No metrics are served at 0.0.0.0:{port}: OSError:")
    assert not any("metrics" in note for note in training.record.notes)


def test_unreadable_figures_are_skipped_with_one_warning(keras, port, caplog, monkeypatch):
    monkeypatch.setattr(LiveTraining, "figures", lambda live: 1 / 0)
    scraped = Scraped(keras, port)
    training = session_with(port)
    training.fit(scraped.call)
    assert training.record.train_step_count == STEPS
    for text in scraped.texts:
        values = parsed(text)[1]
        assert "tfx_perf_train_loss" in values
        assert "tfx_perf_step_time_seconds" not in values
    assert warnings_of(caplog) == ["Some metrics cannot be served."]


@pytest.fixture
def live():
    """A training whose timer the test fills."""
    import keras

    call = captured(model_cases.dense(keras), model_cases.regression())
    loop = FitLoop(call)
    loop.timer = StepTimer()
    return looked_at(call, loop)


def test_before_the_first_step_the_step_count_is_zero(live):
    live.pauses = collector.Pauses()
    for timer in (live._loop.timer, None):
        live._loop.timer = timer
        known = {key: value for key, value in live.figures().items() if value is not None}
        assert (known["train_step_count"], known["garbage_collection_seconds"]) == (0, 0.0)
        assert not {
            "step_time_seconds",
            "python_overhead_ratio",
            "time_to_first_step_seconds",
        } & set(known)
        assert live.loss is None
        assert 0 <= time.time() - live.progress_time < 60
        assert live.labels["plan"] == "Keras fit"


@pytest.mark.slow
def test_calls_may_end_during_a_scrape(live):
    timer, failures = live._loop.timer, []
    stop = threading.Event()

    def train():
        timer.on_epoch_begin(0)
        try:
            while not stop.is_set():
                for _ in range(1000):
                    timer.begin_call()
                    timer.end_call(3)
        except Exception as error:  # for example a BufferError
            failures.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    counts = [live.figures()["train_step_count"] for _ in range(300)]
    stop.set()
    thread.join()
    assert failures == []
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]
    assert live.figures()["train_step_count"] == sum(timer._steps)


def test_a_scrape_reads_only_new_values(live, monkeypatch):
    timer, calls = live._loop.timer, 300_000
    ends = np.arange(calls) / 100
    timer._epochs = array.array("q", [0]) * calls
    timer._steps = array.array("q", [2]) * calls
    timer._ends = array.array("d", ends)
    timer._begins = array.array("d", ends - 0.008)
    timer._saves = array.array("d", [0.0]) * calls
    timer._done = 2 * calls
    copied, part = [], StepTimer.part

    def copy(timer, first, last):
        copied.append(last - first)
        return part(timer, first, last)

    monkeypatch.setattr(StepTimer, "part", copy)
    found = live.figures()
    assert found["train_step_count"] == 2 * calls
    assert found["step_time_seconds"] == pytest.approx(0.005)
    assert found["python_overhead_ratio"] == pytest.approx(0.2)
    assert max(copied) < 20_000  # not all at once, which would delay the training
    copied.clear()
    timer.begin_call()
    timer.end_call(3)
    assert live.figures()["train_step_count"] == 2 * calls + 3
    assert sum(copied) == RECENT_CALLS


def test_work_before_an_interruption_counts_as_done(live):
    live._recovery = types.SimpleNamespace(step=2800)
    live._loop.timer.begin_call()
    live._loop.timer.end_call(3)
    assert (live.done_count, live.step_count) == (2803, 3)


def test_the_count_of_out_of_memory_errors_survives_a_rollback(live):
    live._recovery = types.SimpleNamespace(oom_count=2)
    assert live.figures()["oom_count"] == 2
    live._loop.timer = StepTimer()
    assert live.figures()["train_step_count"] == 0
