"""Workers that are killed and restarted train as they would have without interruption.

They also stop together (`distribute.together`), restart in slices if one runs out of memory
(`shortage`), and continue where nothing can be saved.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.training import two_workers

pytestmark = pytest.mark.each_choice

_SCRIPT = pathlib.Path(__file__).with_name("interrupted_workers.py")


def run(package, place, options, *, restarts=0, workers=2, within=()):
    place.mkdir(exist_ok=True)
    return subprocess.run(
        [
            *within, sys.executable, "-m", "tfx_perf", "launch", "--workers", str(workers),
            "--restarts", str(restarts), "--log", str(place / "logs"), str(_SCRIPT), package,
            str(place), json.dumps(options),
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=400,
    )  # fmt: skip


def launched(package, place, options, *, restarts=0, workers=2, within=()):
    """Returns the results of each worker, and the process with its output."""
    done = run(package, place, options, restarts=restarts, workers=workers, within=within)
    files = sorted(place.glob("*.json"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(files) == workers
    return [json.loads(file.read_text()) for file in files], done


def uninterrupted(package, place, options):
    """Returns the results of each of two workers that run without a supervisor."""
    place.mkdir()
    arguments = [package, str(place), json.dumps(options)]
    for done in two_workers.run(_SCRIPT, [arguments] * 2):
        assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(file.read_text()) for file in sorted(place.glob("*.json"))]


def assert_near(own, was):
    assert own["iterations"] == was["iterations"]
    for part, tolerance in (("weights", {"atol": 1e-5}), ("history", {"rtol": 1e-4})):
        for name, values in was[part].items():
            np.testing.assert_allclose(own[part][name], values, err_msg=name, **tolerance)


_KILLED = {"worker": 1, "epoch": 2, "signal": "SIGKILL"}
_IN_STEPS = {"worker": 0, "step": 14, "signal": "SIGKILL"}
_ACCUMULATING = {**_KILLED, "accumulates": True, "epochs": 4, "stops": [1, 2]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "options"),
    [
        pytest.param("keras", _ACCUMULATING, id="accumulating"),
        pytest.param("tf_keras", {**_KILLED, "worker": 0}, id="tf_keras in calls"),
        pytest.param("keras", _IN_STEPS, id="keras in steps"),
        pytest.param("tf_keras", {**_IN_STEPS, "worker": 1}, id="tf_keras in steps"),
        pytest.param("keras", {"worker": 1, "step": 7, "signal": "SIGTERM"}, id="told to end"),
    ],
)
def test_all_resume_where_they_were(tmp_path, package, options):
    kind = {"step": 1000} if "step" in options else {}
    whole = {"accumulates", "epochs", "stops"} & options.keys()
    kind |= {name: options[name] for name in whole}
    expected = uninterrupted(package, tmp_path / "expected", kind)
    found, done = launched(package, tmp_path / "found", options, restarts=1)
    assert "Restarting all workers (1 of 1)." in done.stderr
    for own, was in zip(found, expected, strict=True):
        assert own["outcome"] == was["outcome"]
        assert own["plan"] == was["plan"]
        assert was["plan_of_next_run"] is None  # it may try some, which this one could not
        assert own["plan"].startswith("Keras fit" if "step" in kind else "10 steps per execution")
        assert own["resumed_step"] >= (10 if "epoch" in options else 4)
        assert len(own["outcome"]["history"]["loss"]) == 3
    (said,) = found[0]["idle_settings"]  # only the first worker's record is that of the training
    assert said.startswith("training.precision=auto has no effect: these workers try no other")
    assert len({json.dumps(own["outcome"]["weights"]) for own in found}) == 1  # averages too
    assert ("Worker 1 stops the training after epoch 3." in done.stdout) == ("stops" in options)
    told = [line for line in done.stdout.splitlines() if "Trained with" in line]
    assert len(told) == 1 and told[0].startswith("0: ")
    assert not (tmp_path / "found" / "checkpoints" / "fit-0").exists()  # the training is complete


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "options"),
    [("keras", {"stops": [1, 0]}), ("tf_keras", {"stops": [0, 0], "step": 1000})],
)
def test_all_stop_if_one_of_them_does(tmp_path, package, options):
    found, done = launched(package, tmp_path / "run", options)
    assert [len(each["outcome"]["history"]["loss"]) for each in found] == [1, 1]
    assert f"Worker {options['stops'][0]} stops the training after epoch 1." in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "before", "after"),
    [("keras", 2, 3), ("tf_keras", 2, 1), ("keras", 3, 1), ("tf_keras", 1, 2)],
)
def test_another_number_of_workers_resumes(tmp_path, package, before, after):
    whole = {"same_alone": True, "accumulates": package == "keras"}
    options = {**whole, "worker": 0, "epoch": 2, "signal": "SIGKILL"}
    (expected, *_), _ = launched(package, tmp_path / "expected", whole, workers=before)
    killed = run(package, tmp_path / "found", options, workers=before)
    assert killed.returncode == 128 + 9, killed.stderr
    (found, *_), _ = launched(package, tmp_path / "found", options, workers=after)
    assert found["resumed_step"] >= 10
    (note,) = [note for note in found["notes"] if "divided again" in note]
    assert note.startswith(f"{after} worker" if after > 1 else "one device")
    assert found["outcome"]["iterations"] == (10 if package == "keras" else 30)
    assert_near(found["outcome"], expected["outcome"])


@pytest.mark.slow
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
@pytest.mark.parametrize("options", [{}, {"step": 1000}], ids=["calls", "plain"])
def test_nan_on_one_worker_is_reported_by_all(tmp_path, package, options):
    done = run(package, tmp_path / "run", {**options, "bad_row": 80})
    assert done.returncode != 0
    words = "NaN or Inf in step 7, first in input, 1 of 48 values, on worker 1"
    for worker in range(2):
        assert words in (tmp_path / "run" / "logs" / f"worker-{worker}.log").read_text()
    assert words in done.stderr.splitlines()[-1]


_SHORT = {"same_alone": True, "saves": True, "exhausts": 1, "from_epoch": 1}


@pytest.mark.slow
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
@pytest.mark.parametrize("starts_over", [False, True])
def test_all_continue_in_slices_if_one_runs_out_of_memory(tmp_path, package, starts_over):
    kill = {"worker": 0, "epoch": 2, "signal": "SIGKILL"}
    (expected, _), _ = launched(package, tmp_path / "expected", {"same_alone": True})
    options = {**_SHORT, **({"from_epoch": 0} if starts_over else kill)}
    everywhere, done = launched(package, tmp_path / "found", options, restarts=2)
    assert "Restarting all workers (1 of 2)." in done.stderr
    assert ("Restarting all workers (2 of 2)." in done.stderr) != starts_over
    for found in everywhere:
        assert found["resumed_step"] == (None if starts_over else 10)
        assert (found["oom_count"], found["slices"]) == (1, 2)
        assert found["plan"].replace(", 2 micro-batches", "") == found["plan_of_next_run"]
        (note,) = [note for note in found["notes"] if "out of memory" in note]
        assert note.startswith("Worker 1 had run out of memory: all resumed at step ")
        assert_near(found["outcome"], expected["outcome"])
    assert not (tmp_path / "found" / "checkpoints" / "fit-0").exists()


@pytest.mark.slow
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_keras_fit_resumes_in_slices_only_if_callbacks_do_not_need_its_batches(tmp_path, package):
    done = run(package, tmp_path / "run", {**_SHORT, "step": 1000}, restarts=1)
    words = "It cannot be cut: the callback LambdaCallback acts on every batch."
    assert words in done.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_without_a_folder_one_that_runs_out_of_memory_ends_all(tmp_path, package):
    done = run(package, tmp_path / "run", {"exhausts": 1, "from_epoch": 1})
    assert done.returncode != 0
    said = done.stderr.splitlines()[-1]
    assert said.startswith("Worker 1: ")
    assert "on worker 1 with a batch of 12 rows, with 10 steps per execution" in said
    assert "no training.checkpoint_folder" in said


@contextlib.contextmanager
def mounted(place, *arguments):
    """Mounts a separate file system at the folder of the checkpoints."""
    checkpoints = place / "checkpoints"
    checkpoints.mkdir(parents=True)
    command = ["mount", *arguments, str(checkpoints)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield checkpoints
    finally:
        subprocess.run(["umount", str(checkpoints)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
@pytest.mark.parametrize("frees", [None, 1], ids=["for good", "for a while"])
def test_a_full_disk_only_costs_the_checkpoints(tmp_path, package, frees):
    place = tmp_path / "run"
    with mounted(place, "-t", "tmpfs", "-o", "size=2m", "tmpfs") as checkpoints:
        with contextlib.suppress(OSError), (checkpoints / "filler").open("wb", 0) as filler:
            while True:
                filler.write(bytes(os.sysconf("SC_PAGE_SIZE")))
        found, done = launched(package, place, {"step": 1000, "saves": True, "frees": frees})
    for worker, each in enumerate(found):
        assert each["outcome"]["iterations"] == 30
        assert [note for note in each["notes"] if "could not be written" in note], each["notes"]
        told = [line for line in done.stdout.splitlines() if "Training continues." in line]
        assert len([line for line in told if line.startswith(f"{worker}: ")]) == 1, told
        assert bool(each["saved_steps"]) == (frees is not None)


@pytest.mark.slow
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_workers_that_save_nothing_end_at_once_on_a_signal(tmp_path, package):
    script = str(_SCRIPT.with_name("launched_worker.py"))
    launch = [sys.executable, "-m", "tfx_perf", "launch", "--workers", "2"]
    command = [*launch, "--log", str(tmp_path), script, package]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        said = []
        for line in process.stdout:
            said.append(line)
            if line.endswith("has begun\n") and len(said) == 1:
                process.send_signal(signal.SIGTERM)
    assert {"0: finally\n", "1: finally\n"} <= set(said)
