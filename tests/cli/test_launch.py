"""`tfx-perf launch`: real processes, each of which is one worker; `options`.

Workers that restart find the files that earlier ones left (`earlier`).
An error in an option (`options.WholeNumber`) is one line.
"""

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tfx_perf.cli import launch
from tfx_perf.core import console

pytestmark = pytest.mark.each_choice
slow = functools.partial(pytest.param, marks=pytest.mark.slow)

_LIGHT = """
import json, os, signal, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
print(f"{task['type']} {task['index']}, {sys.argv[1:]}")
what = sys.argv[1]
if what == "stubborn":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("up", flush=True)
if what == "fails" and task["index"] == 1:
    sys.exit(5)
if what == "killed" and task["index"] == 0:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(0 if what == "ends" else 60)
"""
_TRAINING = """
import importlib, json, os, sys
import numpy as np
import tensorflow as tf
import tfx_perf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras = importlib.import_module(sys.argv[1])
keras.utils.set_random_seed(3)
with strategy.scope():
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
x = np.random.default_rng(0).normal(size=(160, 4)).astype("float32")
data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(8)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
index = json.loads(os.environ.get("TF_CONFIG", '{"task": {"index": 0}}'))["task"]["index"]
with tfx_perf.optimized(folder=f"perf-{index}"):
    model.fit(data.with_options(options), epochs=4, verbose=0)
"""
# The second worker ends in the trials, for which the first one would wait.
_ENDING = """
import os, signal
from tfx_perf.core import workers
from tfx_perf.training.tuning import plan_tuner

def ending(*_):
    if workers.this().index == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    own(*_)

own, plan_tuner.PlanTuner._run_checks = plan_tuner.PlanTuner._run_checks, ending
"""


def started(folder, script, *arguments, workers=2, options=()):
    path = folder / "script.py"
    path.write_text(script)
    command = [sys.executable, "-m", "tfx_perf", "launch", "--workers", str(workers), *options]
    return subprocess.Popen(
        [*command, str(path), *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(folder, *arguments, code=0, **given):
    """Returns all output until the end, and checks the exit code."""
    process = started(folder, *arguments, **given)
    output, error = process.communicate(timeout=300)
    assert process.returncode == code, output + error
    return output, error


def without_pulses(error):
    """Returns the lines of standard error that do not depend on the machine's speed."""
    lines = error.splitlines(keepends=True)
    return "".join(line for line in lines if f" s  {console.STATUS_SIGN} " not in line)


def test_every_worker_knows_which_it_is_and_its_lines_have_its_number(tmp_path):
    output, error = ended(tmp_path, _LIGHT, "ends", "--steps", "3", workers=3)
    assert sorted(line for line in output.splitlines() if "up" not in line) == [
        f"{index}: worker {index}, ['ends', '--steps', '3']" for index in range(3)
    ]


def test_bound_workers_have_cpus_that_no_other_has(tmp_path):
    usable = os.sched_getaffinity(0)
    code = "import os; print(sorted(os.sched_getaffinity(0)))"
    count = min(2, len(usable))
    options = ["--cpu-binding", "exclusive"]
    output, error = ended(tmp_path, code, workers=count, options=options)
    found = [set(json.loads(line.partition(": ")[2])) for line in output.splitlines()]
    assert len(found) == count
    assert sorted(cpu for cpus in found for cpu in cpus) == sorted(usable)
    assert "Worker 0 has CPUs" in error


def test_json_has_standard_output_for_itself(tmp_path):
    output, error = ended(tmp_path, _LIGHT, "ends", options=["--json"])
    assert json.loads(output) == {"exit_codes": [0, 0], "logs": "script.logs"}
    assert "1: worker 1" in error


@pytest.mark.parametrize(
    ("what", "code", "said"),
    [
        ("fails", 5, "Worker 1: ended with exit code 5. All were ended. Log: "),
        ("killed", 137,
         "Worker 0: was killed (SIGKILL), by hand or because memory ran out. All were ended. "),
    ],
)  # fmt: skip
def test_if_one_fails_all_end(tmp_path, what, code, said):
    began = time.monotonic()
    output, error = ended(tmp_path, _LIGHT, what, code=code)
    assert error.splitlines()[-1].startswith(said)
    assert time.monotonic() - began < 50  # the others would have taken a minute


@pytest.mark.parametrize(
    ("number", "what", "options"),
    [
        (signal.SIGTERM, "stubborn", []),
        (signal.SIGKILL, "waits", []),
        slow(signal.SIGKILL, "waits", ["--ps", "1"]),
    ],
)
def test_no_process_is_left_behind(tmp_path, number, what, options):
    process = started(tmp_path, _LIGHT, what, options=options)
    for _ in range(2 if options else 4):  # two lines of the coordinator, or of each worker
        assert process.stdout.readline().startswith("coordinator: " if options else ("0: ", "1: "))
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) == (5 if options else 3)  # and what has started them
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == -number
    psutil.wait_procs(children, timeout=20)
    assert not any(child.is_running() for child in children)


def test_with_servers_only_the_coordinator_runs_the_script_and_all_end_with_it(tmp_path):
    output, error = ended(tmp_path, _LIGHT, "ends", options=["--ps", "1", "--json"])
    exits = json.loads(output)["exit_codes"]
    assert (len(exits), exits[0]) == (4, 0)
    assert [line for line in error.splitlines() if "['ends']" in line] == [
        "coordinator: chief 0, ['ends']"
    ]


@pytest.fixture
def told_of(call_command):
    """Returns a function that gives the single error line for arguments that are refused."""

    def line(*arguments):
        done = call_command("launch", *arguments)
        assert done.returncode == 2
        (said,) = done.stderr.splitlines()
        return said

    return line


def test_a_missing_or_invalid_script_is_refused(told_of):
    assert "Received: script=absent.py" in told_of("--workers", "2", "absent.py")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--worker", "2"], ["No such option", "--workers"]),
        (["--workers", "two"], ["Expected a whole number of at least 1. Received: --workers=two."]),
        (["--workers", "0"], ["Expected a whole number of at least 1. Received: --workers=0."]),
    ],
)
def test_a_wrong_option_is_one_line(options, words, told_of):
    line = told_of(*options, "train.py", "--any-argument")
    for word in words:
        assert word in line


@pytest.mark.parametrize("workers", [["--workers", "2"], ["--workers=2"]])
def test_an_option_after_the_script_is_reported_as_misplaced(workers, told_of):
    line = told_of("train.py", *workers)
    assert f"Expected {workers[0]} before the script" in line
    assert f"Received: train.py {' '.join(workers)}." in line
    assert "Missing option" in told_of("train.py", "--any-argument")


def test_everything_after_the_script_belongs_to_it(tmp_path):
    own = ["--log", "x", "--workers=7", "--json", "--help", "--", "-x"]
    output, error = ended(tmp_path, "import sys; print(sys.argv[1:])", *own, workers=1)
    assert (output, without_pulses(error)) == (f"0: {own}\n", "Logs: script.logs\n")


def test_a_terminal_without_output_gets_progress_lines(monkeypatch, capsys):
    monkeypatch.setattr(launch, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(console, "STATUS_SECONDS", 0.05)
    said = ""
    with launch._never_silent():
        console.set_status("trying plan 1 of 2: 10 steps per execution")
        while not said:
            time.sleep(0.01)
            said = capsys.readouterr().err
    assert re.fullmatch(r" +0\.\d s  \.\.\. trying plan 1 of 2: 10 steps per execution\n", said)


def record_of(folder):
    return json.loads((folder / "perf-0" / "metrics.json").read_text())


# `make test` has such a training in tests/training/test_interrupted_workers.py.
@pytest.mark.slow
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_workers_train_together_and_the_first_one_reports(tmp_path, package):
    output, error = ended(tmp_path, _TRAINING, package, options=["--restarts", "1"])
    (told,) = (line for line in output.splitlines() if "Trained with" in line)
    assert told.startswith("0: Trained with ")
    record = record_of(tmp_path)
    assert (record["worker_count"], record["train_step_count"]) == (2, 80)
    assert record["trials"][0]["status"] == "reference"
    assert record["trials"][-1]["status"] == "untried"  # it is too short for them


@pytest.mark.slow
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_earlier_results_that_only_the_first_worker_has_are_used_by_all(tmp_path, package):
    (tmp_path / "alone.py").write_text(_TRAINING)
    alone = [sys.executable, "alone.py", package]
    subprocess.run(alone, cwd=tmp_path, check=True, capture_output=True, timeout=300)
    before = record_of(tmp_path)
    before["plan"]["steps_per_execution"], before["key"] = 10, {"code": "that was changed"}
    (tmp_path / "perf-0" / "metrics.json").write_text(json.dumps(before))
    output, error = ended(tmp_path, _TRAINING, package, options=["--restarts", "1"])
    assert "start again" not in error
    reference, *others = record_of(tmp_path)["trials"]
    assert reference["status"] == "reference"
    assert any(each["step_time"] for each in others)  # whatever its cost


@pytest.mark.slow
def test_workers_are_compared_with_a_run_alone_and_retry_passing_failures(tmp_path):
    (tmp_path / "alone.py").write_text(_TRAINING)
    alone = [sys.executable, "alone.py", "keras"]
    subprocess.run(alone, cwd=tmp_path, check=True, capture_output=True, timeout=300)
    for options in ([], ["--restarts", "1"]):
        output, error = ended(tmp_path, _TRAINING, "keras", options=options)
        assert "the last run on one replica (a run before)" in output
        assert bool(record_of(tmp_path)["trials"]) == bool(options)


@pytest.mark.slow
def test_trials_that_end_a_worker_are_not_repeated(tmp_path):
    output, error = ended(tmp_path, _ENDING + _TRAINING, "keras", options=["--restarts", "1"])
    assert "Restarting all workers (1 of 1). Worker 1: was killed (SIGKILL)" in error
    assert record_of(tmp_path)["plan_reason"] == "a trial ended the workers"


_FAILING = """
import logging, os, sys, threading, warnings
from tfx_perf.core import workers
import absl.logging

absl.logging.warning("absl says")
warnings.warn("a warning")
os.write(2, b"C says\\n")
logging.warning("own log")
print("own line", file=sys.stderr, flush=True)
if workers.this().index == 1:
    raise KeyError("no [/column] of this name\\nin the data")
threading.Event().wait(60)
"""


def test_the_traceback_of_a_thread_is_in_the_log_which_a_line_names(tmp_path):
    code = (
        "import sys, threading\n"
        "def work(): raise KeyError('absent')\n"
        "for task in (work, sys.exit):\n"
        "    thread = threading.Thread(target=task, name='reader')\n"
        "    thread.start()\n"
        "    thread.join()\n"
    )
    output, error = ended(tmp_path, code, workers=1)
    log = "script.logs/worker-0.log"
    assert output == f"0: Thread reader has failed: KeyError: 'absent'. Log: {log}\n"
    assert "Traceback" not in without_pulses(error)
    logged = (tmp_path / log).read_text()
    assert logged.startswith("Exception in thread reader:\nTraceback ")
    assert "in work" in logged


def test_an_error_of_the_script_ends_all_and_the_last_line_says_which(tmp_path):
    output, error = ended(tmp_path, _FAILING, options=["--restarts", "3"], code=1)
    words = r"KeyError: 'no [/column] of this name\nin the data'"
    told = f"Worker 1: {words}. All were ended. Log: script.logs/worker-1.log\n"
    assert without_pulses(error) == told
    lines = {line.partition(": ")[2] for line in output.splitlines()}
    assert lines == {"WARNING:root:own log", "own line"}
    log = (tmp_path / "script.logs" / "worker-1.log").read_text()
    for said in ("WARNING:absl:absl says", "UserWarning: a warning", "C says", f"\n{words}"):
        assert said in log


_ENDS = """
import argparse, json, os, sys, threading
from tfx_perf.core import workers

ALONE = json.dumps(dict(cluster=dict(chief=["a:1"]), task=dict(type="chief", index=0)))

class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError

if workers.this().index == 1:
    print("no end of line", end="")
    {}
threading.Event().wait(60)
"""


@pytest.mark.parametrize(
    ("ends", "words", "code"),
    [
        slow("raise Unprintable", "Unprintable", 1),
        slow("raise KeyboardInterrupt", "KeyboardInterrupt", 130),
        ("sys.exit('no data in the folder')", "no data in the folder", 1),
        slow("argparse.ArgumentParser().parse_args(['--wrong'])", "ended with exit code 2", 2),
        ("raise ValueError(2000 * 'x')", f"ValueError: {999 * 'x'}…", 1),
        ("del os.environ['TF_CONFIG']; raise KeyError(1)", "KeyError: 1", 1),
        slow("os.environ['TF_CONFIG'] = ALONE; raise KeyError(1)", "KeyError: 1", 1),
    ],
)
def test_the_last_line_says_how_a_worker_has_ended(tmp_path, ends, words, code):
    output, error = ended(
        tmp_path, _ENDS.format(ends), options=["--restarts", "3"], code=code
    )  # fmt: skip
    told = f"Worker 1: {words}. All were ended. Log: script.logs/worker-1.log\n"
    assert without_pulses(error) == told
    assert output.startswith("1: no end of line") and output.endswith("\n")
    assert words not in output  # the error appears once


_LOSING = """
import os, signal, sys
from tfx_perf.core import workers

if os.path.exists("again"):
    sys.exit()
if workers.this().index == 1:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(4))
    os.kill(os.getpid(), signal.SIGSTOP)  # until it is told to end
import tensorflow as tf
open("again", "w").close()
try:
    raise tf.errors.UnavailableError(None, None, "connection reset")
except tf.errors.OpError:
    sys.exit(3)
"""


@pytest.mark.slow
def test_an_exit_after_a_lost_worker_restarts_all(tmp_path):
    output, error = ended(tmp_path, _LOSING, options=["--restarts", "1"])
    assert "Restarting all workers (1 of 1). Worker 0: ended with exit code 3." in error


_LEFT = """
import json, os, sys
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
    sys.exit(0)
import tensorflow as tf
raise tf.errors.UnavailableError(None, None, "connection reset")
"""


@pytest.mark.slow
def test_a_worker_that_left_is_named_when_the_others_lose_it(tmp_path):
    output, error = ended(tmp_path, _LEFT, code=1)
    left = "connection reset; worker 1 had already ended with exit code 0"
    assert left in error.splitlines()[-1]
