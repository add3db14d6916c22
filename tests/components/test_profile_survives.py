"""MemoryProfiler on steps that are killed, hang or raise: it publishes its results, and why.

Each attempt continues with the results of the earlier ones.
"""

import html
import pathlib

import pytest

from tfx_perf.components.memory_profiler import child, executor
from tfx_perf.config import MemorySettings
from tfx_perf.core import errors, unmeasured
from tfx_perf.memory.record import Footprint, ProfileRecord, StateSizes

pytestmark = pytest.mark.each_choice

# The module's batch size is 10, so that 5, 10 and 20 are profiled.
_STRIKING = """
import os, signal, time

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def strike(x):
    if x.shape[0] >= {size}:
        {deed}
    return x

class Strike(keras.layers.Layer):
    def call(self, x):
        y = tf.py_function(strike, [x], x.dtype)
        y.set_shape(x.shape)
        return y
"""
_STRIKING_XLA = """
import os, signal

class Strike(keras.layers.Layer):
    def call(self, x):
        graph = tf.compat.v1.get_default_graph()
        while graph is not None:
            if getattr(graph, "name", "") == "on_flat":  # what only XLA gets to see
                os.kill(os.getpid(), signal.SIGKILL)
            graph = getattr(graph, "outer_graph", None)
        return x
"""


def profiled(trainer, *, memory=None, **module):
    return trainer.profile(trainer.write_module(**module), settings={"memory": memory or {}})


def striking(trainer, size, deed="kill()", *, memory=None, line="keras"):
    beginning = _STRIKING.format(size=size, deed=deed)
    return profiled(trainer, memory=memory, line=line, beginning=beginning, layer="Strike()")


def record_of(profile):
    return ProfileRecord.read(pathlib.Path(profile.uri) / "profile.json")


def page_of(profile):
    return html.unescape((pathlib.Path(profile.uri) / "report.html").read_text())


def test_results_before_a_kill_are_published(trainer):
    profile = striking(trainer, 20)
    record = record_of(profile)
    # Between the two, one more size is tried.
    assert record.endings == {5: "measured", 10: "measured", 14: "measured", 20: "killed"}
    assert (record.largest_batch_size, record.largest_is_lower_bound) == (14, True)
    assert record.step("plain", 10).peak_bytes > 0
    killed = record.step("plain", 20)
    assert "SIGKILL" in killed.reason
    assert killed.reason in page_of(profile)
    assert profile.get_string_custom_property("batch_sizes") == (
        "5: measured; 10: measured; 14: measured; 20: killed"
    )
    assert profile.get_float_custom_property("step_peak_bytes") > 0


@pytest.mark.slow
@pytest.mark.parametrize("line", ["keras", "tf_keras"])
def test_a_kill_at_the_modules_own_batch_size(line, trainer):
    profile = striking(trainer, 10, line=line)
    record = record_of(profile)
    assert record.module_batch_size == 10
    assert record.endings == {5: "measured", 7: "measured", 10: "killed", 20: "not run"}
    assert record.step("plain", 5).peak_bytes > 0
    assert "10" in record.step("plain", 20).reason
    assert record.figures()["step_peak_bytes"] is None
    assert record.state.weights_bytes > 0
    assert "was killed" in page_of(profile)


@pytest.mark.slow
def test_a_kill_at_the_first_batch_size_is_in_the_record(trainer):
    profile = striking(trainer, 1)
    reason = unmeasured.reason_in(profile.uri)
    assert "batch size 5" in reason
    assert "SIGKILL" in reason
    assert profile.get_string_custom_property("not_measured") == reason
    assert profile.has_custom_property("may_pass")
    assert list(pathlib.Path(profile.uri).glob("profile*.log"))


@pytest.mark.slow
def test_a_step_that_raises_costs_only_its_own_figures(trainer, caplog):
    profile = striking(trainer, 20, "raise ValueError('too many rows')")
    record = record_of(profile)
    assert (record.endings[10], record.endings[20]) == ("measured", "failed")
    assert "too many rows" in record.step("plain", 20).reason
    assert record.largest_batch_size == 14
    assert "above 14 rows, at 20 at the latest, the model raises " in record.largest_remark
    assert "Not all was measured: batch" in record.remark
    assert record.remark.count("too many rows") == 1
    (message,) = [each for each in caplog.messages if each == record.remark]
    assert profile.get_string_custom_property("remark") == message
    verdict = page_of(profile).partition('class="verdict')[2].partition("</div>")[0]
    assert "too many rows" in verdict


@pytest.mark.slow
def test_a_step_that_hangs_ends_when_its_time_is_up(trainer):
    profile = striking(trainer, 20, "time.sleep(10**6)", memory={"timeout_seconds": 90})
    record = record_of(profile)
    assert record.endings[20] == "timed out"
    assert record.step("plain", 10).peak_bytes > 0
    assert "did not end within" in record.step("plain", 20).reason


@pytest.mark.slow
def test_a_killed_compiler_costs_only_its_own_figures(trainer):
    record = record_of(profiled(trainer, beginning=_STRIKING_XLA, layer="Strike()"))
    assert record.endings == dict.fromkeys(record.endings, "measured")
    assert {5, 10, 20} <= {*record.endings}
    (asked,) = (step for step in record.steps if step.plan == "xla")
    assert (asked.batch_size, asked.status) == (10, "killed")


@pytest.mark.slow
def test_a_size_predicted_over_the_limit_is_not_run(trainer):
    record = record_of(
        striking(trainer, 10, memory={"max_device_utilization": 1e-8, "timeout_seconds": 300})
    )
    assert {size: record.endings[size] for size in (10, 20)} == dict.fromkeys((10, 20), "not run")
    assert "over the limit" in record.step("plain", 10).reason
    (smallest,) = record.footprints
    assert (smallest.batch_size, smallest.status) == (5, "out of memory")
    assert "stopped at" in smallest.reason
    assert record.largest_batch_size is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        ("pass", child.NO_FIT),
        ("model.fit(iter(train), steps_per_epoch=2)", "Dataset or arrays"),  # to cut into batches
        ("1 / 0", "raised ZeroDivisionError: division by zero"),
        ("raise SystemExit(4)", "raised SystemExit"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
        ("import os; os._exit(3)", "exit code 3"),
    ],
    ids=["loop", "iterator", "raises", "exits", "killed", "ends"],
)
def test_a_module_that_never_reaches_fit(deed, reason, trainer):
    profile = profiled(trainer, train=deed)
    found = unmeasured.reason_in(profile.uri)
    assert reason in found
    assert "\n" not in found
    assert profile.get_string_custom_property("not_measured") == found
    assert profile.get_string_custom_property("remark") == f"Nothing was measured: {found}."
    # A module with its own loop would fail again in the same way.
    assert reason != child.NO_FIT or not profile.has_custom_property("may_pass")
    assert list(pathlib.Path(profile.uri).glob("profile*.log"))


@pytest.mark.slow
def test_a_wrong_split_is_still_a_user_error(trainer):
    with pytest.raises(errors.UserError, match="Received: split=training"):
        trainer.profile(trainer.write_module(), train_args='{"splits": ["training"]}')


@pytest.mark.parametrize("seconds", [2.0, 200.0])
def test_a_footprint_is_expected_to_take_as_long_as_the_first(seconds, tmp_path, monkeypatch):
    first = Footprint(
        batch_size=8, taken_bytes=2**29, limit_bytes=2**30, seconds=seconds, step_seconds=0.01
    )
    record = ProfileRecord(
        module_batch_size=8, device="CPU:0", replica_count=1, keras="keras", steps=(),
        state=StateSizes(weights_bytes=0, optimizer_state_bytes=0, gradients_bytes=0),
        footprints=(first,), memory_limit_bytes=2**30, limit_source="",
    )  # fmt: skip
    attempts = executor.Attempts("{}", {}, settings=MemorySettings(), folder=tmp_path)
    attempts._took_seconds = 200.0  # the time of the whole profile
    tried = []

    def taken(size, **_):
        tried.append(size)
        return [Footprint(batch_size=size, status="killed")]

    monkeypatch.setattr(attempts, "_take", taken)
    _, remark = attempts._footprints(record, most=1000)
    assert tried == ([14] if seconds == 2.0 else [])
    assert bool(tried) is not ("too long" in remark)
