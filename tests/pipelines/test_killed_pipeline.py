"""A whole pipeline is killed while it trains; run again, it ends as if nothing had happened."""

import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import small_pipeline

from tfx_perf.training.record import TrainingRecord

pytestmark = pytest.mark.slow

_START_SECONDS = 180  # imports and CsvExampleGen


def _start(folder: pathlib.Path, line: str) -> subprocess.Popen:
    folder.mkdir(exist_ok=True)
    with open(folder / "log.txt", "ab") as log:
        return subprocess.Popen(
            [sys.executable, small_pipeline.__file__, str(folder), line],
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _log(folder: pathlib.Path) -> str:
    return (folder / "log.txt").read_text(errors="replace")


def _outcome(folder: pathlib.Path) -> tuple[list[np.ndarray], TrainingRecord]:
    (weights,) = folder.glob(f"artifacts/OptimizedTrainer/model/*/*/{small_pipeline.WEIGHTS}")
    (record,) = folder.glob("artifacts/OptimizedTrainer/perf_metrics/*/metrics.json")
    return list(np.load(weights).values()), TrainingRecord.read(record)


def _checkpoints(folder: pathlib.Path) -> list[str]:
    found = folder.glob("artifacts/OptimizedTrainer/.system/training_checkpoints/*/*/checkpoint-*")
    return [path.name for path in found]


def _kill_in_mid_training(process: subprocess.Popen, folder: pathlib.Path) -> None:
    """Kills the process as soon as there is a checkpoint beyond the training's start."""
    limit = time.monotonic() + _START_SECONDS
    while time.monotonic() < limit and process.poll() is None:
        if any(name > "checkpoint-000000000001" for name in _checkpoints(folder)):
            process.send_signal(signal.SIGKILL)
            break
        time.sleep(0.01)
    assert process.wait(timeout=60) == -signal.SIGKILL, _log(folder)[-3000:]


@pytest.mark.parametrize("line", ["keras", "tf_keras"])
def test_a_killed_pipeline_resumes_where_it_was(line, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert _start(whole, line).wait(timeout=300) == 0, _log(whole)[-3000:]
    expected, undisturbed = _outcome(whole)
    assert undisturbed.resumed_step is None

    _kill_in_mid_training(_start(killed, line), killed)
    assert not list(killed.glob("artifacts/OptimizedTrainer/model/*/Format-Serving"))
    assert _start(killed, line).wait(timeout=300) == 0, _log(killed)[-3000:]
    found, resumed = _outcome(killed)

    assert 0 < resumed.resumed_step < small_pipeline.STEPS
    assert resumed.train_step_count == small_pipeline.STEPS - resumed.resumed_step
    assert resumed.plan == undisturbed.plan
    for value, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(value, other)
    assert not _checkpoints(killed)  # nothing is left to resume from
