"""Plans with oneDNN: tried in turns (`comparisons`), trained in a process that uses it."""

import functools
import json
import pathlib
import signal
import subprocess
import sys
import time

import pytest
import training_cases
from tfx.utils import json_utils

from tfx_perf.components.optimized_trainer import child, supervision
from tfx_perf.components.training_job import TrainingJob
from tfx_perf.config import PerfConfig
from tfx_perf.hardware import host
from tfx_perf.tf_internals import devices as tf_devices
from tfx_perf.training.optimizations import onednn
from tfx_perf.training.optimizations.plan import TrainingPlan
from tfx_perf.training.trials.choice import PlanChoice, plain
from tfx_perf.training.trials.contest import Contest
from tfx_perf.training.trials.earlier import KnownPlan

pytestmark = pytest.mark.each_choice

WITH = TrainingPlan(onednn=True)
# In the process that trains, which is not the test's.
IS_LONG = """
from tfx_perf.components.optimized_trainer import child

child.is_worth_onednn = lambda *args, **kwargs: True
"""
HAS_LITTLE_MEMORY = """
from tfx_perf.hardware import host

host.available_memory_bytes = lambda: 2**20
"""
# Tells of each process that trains whether it uses oneDNN.
TELLS = """
import os, pathlib
from tensorflow.python.util import _pywrap_util_port

path = pathlib.Path(os.environ["TELL_FOLDER"], f"process-{os.getpid()}")
path.write_text(str(_pywrap_util_port.IsMklEnabled()))
"""
WAIT = """
import time

def wait(y):
    time.sleep(0.02)
    return y

def slowly(x, y):
    return x, tf.ensure_shape(tf.py_function(wait, [y], y.dtype), y.shape)
"""


def test_a_training_must_be_long_enough_for_it():
    worth = functools.partial(child.is_worth_onednn, start_seconds=4.0)
    assert worth(0.101, step_count=3000)  # 60 s to gain, 42 s to spend
    assert not worth(0.101, step_count=2000)
    assert not worth(0.001, step_count=10**6)  # which Python takes
    assert not worth(0.101, step_count=0)  # nobody knows


def test_where_there_is_something_to_decide(monkeypatch, tmp_path):
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
    # As on a processor whose features do not switch it on.
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
        trial_budget_seconds=100,
        steps_per_call=(10,),
    )
    record = trainer.record
    assert [each.plan for each in seen] == [WITH]
    assert record.plan.onednn
    assert str(record.plan).endswith(", oneDNN")
    assert record.train_step_count == 120
    assert record.is_settled
    *tried, other = [str(trial.plan) for trial in record.trials]
    assert tried == ["plain fit", "plain fit, oneDNN"]
    assert other.endswith(" steps per call, fused update, oneDNN")  # as many as are long enough
    assert [trial.plan for trial in record.trials if trial.status == "chosen"] == [record.plan]
    assert trainer.perf_metrics.get_custom_property("plan") == str(record.plan)
    told = {path.name: path.read_text() for path in tmp_path.glob("process-*")}
    # One that found it worth trying, the two in turns, and that which tried the others and trained.
    assert len(told) == 4
    assert sorted(told.values())[-2:] == ["True"] * 2
    logs = {path.name for path in pathlib.Path(trainer.perf_metrics.uri).glob("*.log")}
    assert logs == {"trials.log", "onednn-on.log", "onednn-off.log"}


@pytest.mark.slow
@pytest.mark.parametrize("beginning", ["", IS_LONG + HAS_LITTLE_MEMORY], ids=["short", "large"])
def test_a_training_is_spared_it(beginning, tmp_path, monkeypatch):
    monkeypatch.setattr(onednn, "is_open", lambda: True)
    trainer = training_cases.Trainer(tmp_path)
    trainer.run(
        module={"beginning": beginning}, compilation={"enabled": False}, steps_per_call=(10,)
    )
    assert len(trainer.record.trials) == 2
    assert not any(trial.plan.onednn for trial in trainer.record.trials)


SCRIPT = """
import json, pathlib, sys
from tfx.utils import json_utils
from tfx_perf.components.optimized_trainer import supervision
from tfx_perf.training.trials.earlier import KnownPlan
from tfx_perf.components.training_job import TrainingJob
from tfx_perf.training.trials.choice import PlanChoice

job, outputs, choice, folder = json.loads(sys.argv[1])
supervision.train(
    TrainingJob.model_validate(job), json_utils.loads(outputs),
    known=KnownPlan(choice=PlanChoice.model_validate(choice)), log_folder=pathlib.Path(folder),
)
"""


@pytest.mark.slow
def test_sigterm_reaches_the_process_that_trains(tmp_path):
    trainer = training_cases.Trainer(tmp_path)
    module = trainer.write_module(
        beginning=WAIT, train=training_cases.FIT.replace("train,", "train.map(slowly),", 1)
    )
    checkpoints = tmp_path / "checkpoints"
    training = {"checkpoint_steps": 10_000, "checkpoint_folder": str(checkpoints)}
    settings = PerfConfig.from_dict({"training": training})
    job = TrainingJob.of(
        {"examples": [trainer.examples], "schema": [trainer.schema]},
        {
            "module_file": str(module),
            "train_args": '{"num_steps": 500}',
            "eval_args": '{"num_steps": 2}',
            "custom_config": "null",
            "config": settings.to_json(),
        },
    )
    outputs = {
        "model": [trainer.model], "model_run": [trainer.model_run],
        "perf_metrics": [trainer.perf_metrics],
    }  # fmt: skip
    choice = PlanChoice(plan=WITH, plan_reason="for the test")
    arguments = [
        job.model_dump(mode="json"), json_utils.dumps(outputs), choice.model_dump(mode="json"),
        str(checkpoints),
    ]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, json.dumps(arguments)], stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not list(checkpoints.glob("fit-0/*")) and time.monotonic() < deadline:
        time.sleep(0.1)  # that of the start
    time.sleep(2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == -signal.SIGTERM, process.stderr.read()[-2000:]
    # As the executor goes on.
    record = supervision.train(
        job, outputs, known=KnownPlan(choice=plain("planted")), log_folder=tmp_path
    )
    assert 0 < record.resumed_step < 500
    assert record.plan == WITH
    assert record.train_step_count == 500 - record.resumed_step
