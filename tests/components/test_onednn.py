"""Plans with oneDNN: tried in turns (`comparisons`), trained in a process that uses it."""

import functools
import pathlib

import pytest
import training_cases

from tfx_perf.components.optimized_trainer import child
from tfx_perf.hardware import host
from tfx_perf.tf_internals import devices as tf_devices
from tfx_perf.training.speedups import onednn
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.tuning.contest import Contest

pytestmark = pytest.mark.each_choice

WITH = TrainingPlan(onednn=True)
# In the process that trains, not the test's process.
IS_LONG = """
from tfx_perf.components.optimized_trainer import child

child.is_worth_onednn = lambda *args, **kwargs: True
"""
HAS_LITTLE_MEMORY = """
from tfx_perf.hardware import host

host.available_memory_bytes = lambda: 2**20
"""
# Records for each training process whether it uses oneDNN.
TELLS = """
import os, pathlib
from tensorflow.python.util import _pywrap_util_port

path = pathlib.Path(os.environ["TELL_FOLDER"], f"process-{os.getpid()}")
path.write_text(str(_pywrap_util_port.IsMklEnabled()))
"""


def test_a_training_must_be_long_enough_for_it():
    worth = functools.partial(child.is_worth_onednn, start_seconds=4.0)
    assert worth(0.101, step_count=3000)  # 60 s to gain, 42 s to spend
    assert not worth(0.101, step_count=2000)
    assert not worth(0.001, step_count=10**6)  # Python takes this time, not operations
    assert not worth(0.101, step_count=0)  # the number of steps is unknown


def test_hosts_on_which_onednn_is_undecided(monkeypatch, tmp_path):
    features, devices = ["avx2", "fma"], tmp_path
    monkeypatch.setattr(host, "cpu_features", lambda: tuple(features))
    monkeypatch.setattr(host, "_DEVICES", devices)
    monkeypatch.setattr(tf_devices, "uses_onednn", lambda: False)
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    assert onednn.is_open()
    (devices / "nvidia0").touch()
    assert not onednn.is_open()
    (devices / "nvidia0").unlink()
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    assert not onednn.is_open()
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS")
    features.clear()
    assert not onednn.is_open()


@pytest.mark.slow
@pytest.mark.parametrize("line", ["keras", "tf_keras"])
def test_it_is_tried_first_and_trained_in_a_process_that_uses_it(line, tmp_path, monkeypatch):
    # As on a processor whose features do not enable it by default.
    monkeypatch.setattr(onednn, "is_open", lambda: True)
    monkeypatch.setenv("TELL_FOLDER", str(tmp_path))
    trainer = training_cases.Trainer(tmp_path)

    def first(contest):
        assert contest.others  # the loss is the same
        seen.extend(contest.others)
        return contest.others[0]

    seen = []
    monkeypatch.setattr(Contest, "fastest", first)
    trainer.run(
        module={"line": line, "beginning": TELLS + IS_LONG},
        compilation={"enabled": False},
        tuning_seconds=100,
        steps_per_execution=(10,),
    )
    record = trainer.record
    assert [each.plan for each in seen] == [WITH]
    assert record.plan.onednn
    assert str(record.plan).endswith(", oneDNN")
    assert record.train_step_count == 120
    assert record.is_settled
    *tried, other = [str(trial.plan) for trial in record.trials]
    assert tried == ["Keras fit", "Keras fit, oneDNN"]
    assert other.endswith(
        " steps per execution, fused update, oneDNN"
    )  # as many as make a call long enough
    assert [trial.plan for trial in record.trials if trial.status == "chosen"] == [record.plan]
    assert trainer.perf_metrics.get_custom_property("plan") == str(record.plan)
    told = {path.name: path.read_text() for path in tmp_path.glob("process-*")}
    # One process that found it worth trying, two in turns, and one that tried the rest and trained.
    assert len(told) == 4
    assert sorted(told.values())[-2:] == ["True"] * 2
    logs = {path.name for path in pathlib.Path(trainer.perf_metrics.uri).glob("*.log")}
    assert logs == {"trials.log", "onednn-on.log", "onednn-off.log"}


@pytest.mark.slow
@pytest.mark.parametrize("beginning", ["", IS_LONG + HAS_LITTLE_MEMORY], ids=["short", "large"])
def test_short_and_large_trainings_do_not_try_it(beginning, tmp_path, monkeypatch):
    monkeypatch.setattr(onednn, "is_open", lambda: True)
    trainer = training_cases.Trainer(tmp_path)
    trainer.run(
        module={"beginning": beginning}, compilation={"enabled": False}, steps_per_execution=(10,)
    )
    assert len(trainer.record.trials) == 2
    assert not any(trial.plan.onednn for trial in trainer.record.trials)
