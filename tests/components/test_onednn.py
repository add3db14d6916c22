"""Plans with oneDNN: tried in turns, trained in a process that uses it."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
import training_cases
from tfx.utils import json_utils

from tfx_perf import statistics
from tfx_perf.components import in_turns
from tfx_perf.components.optimized_trainer import onednn_trial, training
from tfx_perf.config import PerfConfig, TrainingConfig
from tfx_perf.hardware import host, onednn
from tfx_perf.training.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.trials.choice import PlanChoice
from tfx_perf.training.trials.trial_record import TrialRecord

WITH = TrainingPlan(onednn=True)
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


def step_time(seconds):
    return statistics.Interval(value=seconds, low=seconds, high=seconds)


def choice(plan=PLAIN_FIT, *, others=(), steps=1000, step_seconds=0.1, start_up=1.0):
    """A choice of the trials, in which plain fit took a tenth of a second."""
    status = "reference" if plan == PLAIN_FIT else "chosen"
    trials = [
        TrialRecord(plan=plan, status=status, reason="", step_time=step_time(step_seconds)),
        *(
            TrialRecord(plan=plan, status="slower", reason="", step_time=step_time(seconds))
            for plan, seconds in others
        ),
    ]
    return PlanChoice(
        plan=plan,
        plan_reason="",
        trials=tuple(trials),
        fit_step_count=steps,
        trial_import_seconds=start_up,
        trial_setup_seconds=start_up,
    )


def judged(*, off, on, losses=((1.0, 1.0), (1.0,)), found=None):
    first, second = losses
    return onednn_trial._judged(
        found or choice(),
        WITH,
        off=in_turns.Trained([off] * 9, list(first)),
        on=in_turns.Trained([on] * 9, list(second)),
        settings=TrainingConfig(),
    )


def test_it_must_be_faster_and_reach_the_same_loss():
    assert judged(off=0.12, on=0.10).status == "chosen"
    assert judged(off=0.12, on=0.10).speedup.value == pytest.approx(1.2)
    assert judged(off=0.101, on=0.10).status == "slower"  # within the margin of 2 %
    different = judged(off=0.2, on=0.1, losses=((1.0, 1.0), (1.1,)))
    assert different.status == "different"
    assert "differs by 10.0%" in different.reason
    nan = judged(off=0.2, on=0.1, losses=((1.0, 1.0), (float("nan"),)))
    assert nan.status == "different"
    # What the training differs from itself by does not count.
    noisy = judged(off=0.2, on=0.1, losses=((1.0, 1.06), (1.1,)))
    assert noisy.status == "chosen"


def test_turns_end_when_no_further_one_would_change_the_outcome():
    uneven = [1.0, 1.5, 0.7] * 3
    assert onednn_trial._is_decided([[1.2] * 9, [1.0] * 9], 0.02)
    assert onednn_trial._is_decided([[1.0] * 9, [1.2] * 9], 0.02)
    assert not onednn_trial._is_decided([uneven, [1.0] * 9], 0.02)


def test_a_training_must_be_long_enough_for_it():
    assert onednn_trial._may_pay(choice(steps=1000))  # some 20 s to gain, 6 s to spend
    assert not onednn_trial._may_pay(choice(steps=200))
    assert not onednn_trial._may_pay(choice(steps=None))
    assert not onednn_trial._may_pay(PlanChoice(plan=PLAIN_FIT, plan_reason="not tried"))


def test_xla_has_kernels_of_its_own():
    fused = TrainingPlan(steps_per_call=5, fused_update=True)
    xla = TrainingPlan(steps_per_call=5, xla=True)
    others = [(PLAIN_FIT, 0.1), (fused, 0.08)]
    assert onednn_trial._with_kernels(choice(xla, others=others, step_seconds=0.07)) == fused
    assert onednn_trial._with_kernels(choice(fused, others=others)) == fused


def test_where_there_is_something_to_decide(monkeypatch, tmp_path):
    features, devices = ["avx2", "fma"], tmp_path
    monkeypatch.setattr(host, "cpu_features", lambda: tuple(features))
    monkeypatch.setattr(host, "_DEVICES", devices)
    monkeypatch.setattr(onednn, "is_on", lambda: False)
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


@pytest.mark.parametrize("line", ["keras", pytest.param("tf_keras", marks=pytest.mark.slow)])
def test_it_is_tried_and_trained_in_processes_that_use_it(line, tmp_path, monkeypatch):
    monkeypatch.setattr(onednn, "is_open", lambda: True)
    monkeypatch.setattr(onednn_trial, "_HOPED_SHARE", 1e6)
    monkeypatch.setenv("TELL_FOLDER", str(tmp_path))
    trainer = training_cases.Trainer(tmp_path)

    def is_fast_enough(found, plan, **kwargs):
        record = judged_really(found, plan, **kwargs)
        seen.append(record)
        return record.model_copy(update={"status": "chosen"})

    seen, judged_really = [], onednn_trial._judged
    monkeypatch.setattr(onednn_trial, "_judged", is_fast_enough)
    trainer.run(
        module={"line": line, "beginning": TELLS},
        compilation={"enabled": False},
        trial_budget_seconds=100,
        steps_per_call=(10,),
    )
    record = trainer.record
    assert seen[0].status in ("chosen", "slower"), seen[0].reason  # the loss is the same
    assert record.plan.onednn and not record.plan.uses_xla
    assert str(record.plan).endswith(", oneDNN")
    assert record.train_step_count == 120
    assert [trial.plan for trial in record.trials if trial.status == "chosen"] == [record.plan]
    assert trainer.perf_metrics.get_custom_property("plan") == str(record.plan)
    told = {path.name: path.read_text() for path in tmp_path.glob("process-*")}
    assert told.pop(f"process-{os.getpid()}") == str(onednn.is_on())
    # The trials' process, the two in turns, and the one that trained.
    assert len(told) == 4
    assert sorted(told.values())[-2:] == ["True", "True"]
    logs = {path.name for path in pathlib.Path(trainer.perf_metrics.uri).glob("*.log")}
    assert {"onednn-on.log", "onednn-off.log"} <= logs


SCRIPT = """
import pathlib, sys
from tfx.utils import json_utils
from tfx_perf.components.optimized_trainer import training

if __name__ == "__main__":
    found = training.Training.read(sys.argv[1])
    found.run(json_utils.loads(found.outputs))
"""


def test_sigterm_reaches_the_process_that_trains(tmp_path):
    trainer = training_cases.Trainer(tmp_path)
    module = trainer.write_module(
        beginning=WAIT, train=training_cases.FIT.replace("train,", "train.map(slowly),", 1)
    )
    settings = PerfConfig.from_dict({"training": {"checkpoint_steps": 10_000}})
    path, checkpoints = tmp_path / "training.json", tmp_path / "checkpoints"
    found = training.Training(
        inputs=json_utils.dumps({"examples": [trainer.examples], "schema": [trainer.schema]}),
        outputs=json_utils.dumps({
            "model": [trainer.model], "model_run": [trainer.model_run],
            "perf_metrics": [trainer.perf_metrics],
        }),
        exec_properties={
            "module_file": str(module),
            "train_args": '{"num_steps": 500}',
            "eval_args": '{"num_steps": 2}',
            "custom_config": "null",
            "config": settings.to_json(),
        },
        code="",
        plan=WITH,
        given=PlanChoice(plan=WITH, plan_reason="for the test"),
        checkpoint_folder=str(checkpoints),
    )  # fmt: skip
    found.write(path)
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path)], stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not list(checkpoints.glob("fit-0/*")) and time.monotonic() < deadline:
        time.sleep(0.1)  # that of the start
    time.sleep(2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == -signal.SIGTERM, process.stderr.read()[-2000:]
    outputs = json_utils.loads(found.outputs)
    found.model_copy(update={"given": None}).run(outputs)  # as the executor goes on
    record = trainer.record
    assert 0 < record.resumed_step < 500
    assert record.plan == WITH
    assert record.train_step_count == 500 - record.resumed_step
    assert outputs["perf_metrics"][0].get_custom_property("plan") == "plain fit, oneDNN"
