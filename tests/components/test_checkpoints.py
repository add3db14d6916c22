"""The files that OptimizedTrainer leaves beside checkpoints, and those it removes."""

import subprocess
import sys

import pytest

from tfx_perf.components.optimized_trainer import checkpoints

HOLD = """
import sys
from tfx_perf.training.recovery.folder_lock import FolderLock
lock = FolderLock(sys.argv[1])
lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


def filled(folder, *more):
    """Creates the files of a training that was killed before its first checkpoint, and `more`."""
    for name in ("in_use.lock", "model_run/log.csv", "fit-0/ab/draft-next/part", *more):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


@pytest.mark.parametrize("ends", [True, False])
def test_nothing_is_left_of_a_training_without_checkpoints(ends, tmp_path):
    folder = tmp_path / "own"
    try:
        with checkpoints.tidied(str(folder)):
            filled(folder)
            if not ends:
                raise RuntimeError
    except RuntimeError:
        pass
    assert not folder.exists()


@pytest.mark.parametrize(
    "of_use",
    [
        "choice.json",
        "fit-0/ab/checkpoint-4-1/manifest.json",
        "fit-0/ab/attempt.json",
        "fit-0/ab/shortage.json",
    ],
)
def test_files_that_another_run_resumes_from_stay(of_use, tmp_path):
    with checkpoints.tidied(str(tmp_path)):
        filled(tmp_path, of_use)
    assert (tmp_path / of_use).exists()
    assert (tmp_path / "model_run" / "log.csv").exists()


def test_files_of_others_stay(tmp_path):
    with checkpoints.tidied(str(tmp_path)):
        filled(tmp_path, "notes.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_in_use_by_another_process_stays(tmp_path):
    filled(tmp_path)
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout.readline() == "held\n"
        with checkpoints.tidied(str(tmp_path)):
            pass
        assert (tmp_path / "model_run" / "log.csv").exists()
        process.stdin.close()
