"""What goes wrong in one of OptimizedTrainer's workers alone, in real processes on this machine.

The same under `tfx-perf launch` is in `tests/training/test_interrupted_workers.py`.
"""

import contextlib
import os
import pathlib
import subprocess

import pytest
import training_cases

from tfx_perf.core import errors

pytestmark = pytest.mark.slow

_HELPERS = str(pathlib.Path(__file__).parents[1] / "training")  # with `worker_faults`
MODULE = {
    "line": "keras",
    "beginning": "import os, pathlib, sys\n"
    f"sys.path.insert(0, {_HELPERS!r})\nimport worker_faults\n"
    "from tfx_perf.core import workers\n"
    "from tfx_perf.training.recovery import guard, saver\n"
    "saver._SAVE_SHARE = guard._PERIOD_SECONDS = 0\n"
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
# Something that goes wrong in the first plan that worker 1 tries, and never again.
IN_TRIAL = """
    from tfx_perf.training.replicas import sync
    from tfx_perf.training.trials.equivalence import EquivalenceCheck
    sync._PATIENCE_SECONDS = 10
    with model.distribute_strategy.scope():
        model.compile("adam", worker_faults.hungry_loss)
    own_check = EquivalenceCheck._check
    def check(self, plan):
        flag = pathlib.Path({flag!r})
        if INDEX == 1 and not flag.exists():
            flag.touch()
            {fault}
        return own_check(self, plan)
    EquivalenceCheck._check = check
    """


@pytest.fixture
def trainer(tmp_path):
    (tmp_path / "data").mkdir()
    return training_cases.Trainer(tmp_path / "data")


def run(trainer, before="", *, folder, **training):
    trainer.run(
        module={**MODULE, "train": f"{before.strip()}\n    {FIT}" if before else FIT},
        distribution={"workers": 2},
        seed=5,
        checkpoint_folder=str(folder),
        checkpoint_steps=10,
        **{"planned_runs": 1, **training},  # for one run there are no trials
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


@pytest.mark.parametrize(
    ("fault", "cause", "note"),
    [
        ("worker_faults.limit_memory()", "on worker 1", "worker 1: FailedAloneError: "),
        ("os.kill(os.getpid(), 9)", "a worker ended in it", "worker 1: was killed (SIGKILL)"),
        ("raise ValueError('here alone')", "a worker ended in it", "worker "),
    ],
    ids=["memory", "killed", "alone"],
)
def test_a_plan_that_one_worker_fails_in_is_left_out(trainer, tmp_path, fault, cause, note):
    module = IN_TRIAL.format(flag=str(tmp_path / "flag"), fault=fault)
    budgeted = {"planned_runs": 10**6, "trial_budget_seconds": 300}
    run(trainer, module, folder=tmp_path / "checkpoints", **budgeted)
    record = trainer.record
    failed = [each for each in record.trials if each.status == "failed"]
    assert failed  # one, or several that differ in their steps a call
    assert all(cause in each.reason and each.plan.steps_per_call for each in failed)
    assert record.plan.is_plain_fit  # what it would have trained with, untried, is that plan
    assert record.plan_reason == "trials of it have ended the workers"
    assert record.is_settled == ("memory" in fault)
    assert (record.train_step_count, record.oom_count) == (120, 0)
    assert f"the workers were started again after {note}" in " ".join(record.notes)


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
