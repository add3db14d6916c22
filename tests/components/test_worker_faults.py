"""What goes wrong in one of OptimizedTrainer's workers alone, in real processes on this machine.

The same under `tfx-perf launch` is in `tests/training/test_interrupted_workers.py`.
"""

import contextlib
import os
import pathlib
import signal
import subprocess

import pytest
import training_cases

from tfx_perf import errors
from tfx_perf.components.optimized_trainer import executor

pytestmark = pytest.mark.slow

_HELPERS = str(pathlib.Path(__file__).parents[1] / "training")  # with `worker_faults`
MODULE = {
    "line": "keras",
    "beginning": f"import sys\nsys.path.insert(0, {_HELPERS!r})\nimport worker_faults\n"
    "from tfx_perf import workers\n"
    "from tfx_perf.training.recovery import decisions, save_clock\n"
    "save_clock._SAVE_SHARE = decisions._PERIOD_SECONDS = 0\n"
    "INDEX = workers.this().index",
    "template": training_cases.MODULE.replace(
        "MirroredStrategy()", "MultiWorkerMirroredStrategy()"
    ).replace("batch_size=10,", "batch_size=10, shuffle=False,"),
}
FIT = "model.fit(train, steps_per_epoch=20, epochs=6, verbose=0)"
# The example with 27 / 60 is in the third batch, and in the second worker's half of it.
SPOILT = """
    def spoilt(x, y):
        number = x["number"]
        return {"number": tf.where(tf.abs(number - 27 / 60) < 1e-3, float("nan"), number)}, y
    train = train.map(spoilt)
    """
EXHAUSTED = """
    with model.distribute_strategy.scope():
        model.compile("adam", worker_faults.exhausting(is_here=INDEX == 1))
    """
KILLED = """
    import pathlib
    folder = pathlib.Path({folder!r})
    worker_faults.kill_in_save(folder / "checkpoints", INDEX, [[0, 60], [1, 9], [0, 25]])
    """

TOLD = """
    import os, pathlib, signal
    class Telling(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            flag = pathlib.Path({flag!r})
            if INDEX == 0 and epoch == {epoch} and not flag.exists():
                flag.touch()
                os.kill(os.getppid(), signal.SIGTERM)
    """


@pytest.fixture
def trainer(tmp_path):
    (tmp_path / "data").mkdir()
    return training_cases.Trainer(tmp_path / "data")


def given(trainer, before="", *, folder, fit=FIT, workers=2):
    """Returns what OptimizedTrainer gets."""
    train = f"{before.strip()}\n    {fit}" if before else fit
    return trainer.given(
        trainer.write_module(**MODULE, train=train),
        distribution={"workers": workers},
        planned_runs=1,  # no trials
        seed=5,
        checkpoint_folder=str(folder),
        checkpoint_steps=10,
    )


def run(*arguments, **named):
    executor.Executor().Do(*given(*arguments, **named))


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (SPOILT, r"NaN or Inf in step 3, first in input \['number'\], 1 of 10 .*, on worker 1"),
        (EXHAUSTED, r"memory of every replica.* on worker 1.* Make the batch smaller"),
    ],
    ids=["nan", "out of memory"],
)
def test_what_is_wrong_on_one_worker_ends_all_and_is_said(before, words, trainer, tmp_path):
    with pytest.raises(errors.UserError, match=words):
        run(trainer, before, folder=tmp_path / "checkpoints")


def test_a_full_folder_of_checkpoints_costs_these_only(trainer, tmp_path):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        with contextlib.suppress(OSError), (folder / "filler").open("wb", 0) as filler:
            while True:
                filler.write(bytes(os.sysconf("SC_PAGE_SIZE")))
        run(trainer, folder=folder)
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    assert trainer.record.train_step_count == 120
    assert [note for note in trainer.record.notes if "could not be written" in note]


def test_workers_that_are_killed_among_the_checkpoints_train_what_they_would_have(
    trainer, tmp_path
):
    run(trainer, folder=tmp_path / "whole")
    expected = trainer.variables()
    killed = KILLED.format(folder=str(tmp_path))
    run(trainer, killed, folder=tmp_path / "checkpoints")
    assert len([each for each in trainer.record.notes if "started again" in each]) == 3
    for name, value in expected.items():
        assert (trainer.variables()[name] == value).all(), name


def test_three_workers_that_are_told_to_end_save_and_go_on(trainer, tmp_path):
    fit = FIT.replace("verbose=0", "verbose=0, callbacks=[Telling()]")

    def training(folder, *, epoch):
        told = TOLD.format(flag=str(tmp_path / "flag"), epoch=epoch)
        return given(trainer, told, folder=tmp_path / folder, fit=fit, workers=3)

    executor.Executor().Do(*training("whole", epoch=-1))
    expected = trainer.variables()
    process = training_cases.started(training("checkpoints", epoch=2))
    _, error = process.communicate(timeout=400)
    assert process.returncode == -signal.SIGTERM, error
    executor.Executor().Do(*training("checkpoints", epoch=2))
    assert trainer.record.resumed_step >= 40
    for name, value in expected.items():
        assert (trainer.variables()[name] == value).all(), name
