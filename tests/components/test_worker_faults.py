"""What goes wrong in one of OptimizedTrainer's workers alone, in real processes on this machine.

The same under `tfx-perf launch` is in `tests/training/test_interrupted_workers.py`.
"""

import contextlib
import os
import pathlib
import subprocess

import pytest
import training_cases

from tfx_perf import errors

pytestmark = pytest.mark.slow

_HELPERS = str(pathlib.Path(__file__).parents[1] / "training")  # with `worker_faults`
MODULE = {
    "line": "keras",
    "beginning": f"import sys\nsys.path.insert(0, {_HELPERS!r})\nimport worker_faults\n"
    "from tfx_perf import workers\n"
    "from tfx_perf.training.recovery import decisions, save_clock\n"
    "save_clock._SAVE_SHARE = decisions._PERIOD_SECONDS = 0\n"
    "INDEX, CALLBACKS = workers.this().index, []",
    "template": training_cases.MODULE.replace(
        "MirroredStrategy()", "MultiWorkerMirroredStrategy()"
    ).replace("batch_size=10,", "batch_size=10, shuffle=False,"),
}
FIT = "model.fit(train, steps_per_epoch=20, epochs=6, verbose=0, callbacks=CALLBACKS)"
# The example with 27 / 60 is in the third batch, and in the second worker's half of it.
SPOILT = """
    def spoilt(x, y):
        number = x["number"]
        return {"number": tf.where(tf.abs(number - 27 / 60) < 1e-3, float("nan"), number)}, y
    train = train.map(spoilt)
    """
SHORT = """
    with model.distribute_strategy.scope():
        model.compile("adam", worker_faults.hungry_loss)
    def limit(epoch, logs):
        if (INDEX, epoch) == (1, 1):
            worker_faults.limit_memory()
    CALLBACKS.append(keras.callbacks.LambdaCallback(on_epoch_begin=limit))
    """


@pytest.fixture
def trainer(tmp_path):
    (tmp_path / "data").mkdir()
    return training_cases.Trainer(tmp_path / "data")


def run(trainer, before="", *, folder, **training):
    trainer.run(
        module={**MODULE, "train": f"{before.strip()}\n    {FIT}" if before else FIT},
        distribution={"workers": 2},
        planned_runs=1,  # no trials
        seed=5,
        checkpoint_folder=str(folder),
        checkpoint_steps=10,
        **training,
    )


def test_nan_on_one_worker_ends_all_and_is_said(trainer, tmp_path):
    words = r"NaN or Inf in step 3, first in input \['number'\], 1 of 10 .*, on worker 1"
    with pytest.raises(errors.UserError, match=words):
        run(trainer, SPOILT, folder=tmp_path / "checkpoints")


def test_where_one_worker_runs_out_of_memory_all_go_on_in_slices(trainer, tmp_path):
    run(trainer, SHORT, folder=tmp_path / "checkpoints")
    record = trainer.record
    assert record.resumed_step in (10, 20)
    assert (record.oom_count, record.micro_batches) == (1, 2)
    told = " ".join(record.notes)
    assert f"all went on from step {record.resumed_step} with {record.plan}" in told
    assert "the workers were started again after worker 1: ShortOfMemoryError: " in told


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
