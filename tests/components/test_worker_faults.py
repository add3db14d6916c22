"""A trial that goes wrong in one of OptimizedTrainer's workers alone, in real processes.

What goes wrong in trainings is in `tests/training/test_interrupted_workers.py`.
"""

import pathlib

import pytest
import training_cases

pytestmark = pytest.mark.slow

_HELPERS = str(pathlib.Path(__file__).parents[1] / "training")  # has `interrupted_workers`
MODULE = {
    "line": "keras",
    "beginning": "import os, pathlib, sys\n"
    f"sys.path.insert(0, {_HELPERS!r})\nimport interrupted_workers\n"
    "from tfx_perf.core import workers\n"
    "from tfx_perf.training.recovery import checkpoint_writer, guard\n"
    "checkpoint_writer._SAVE_SHARE = guard._PERIOD_SECONDS = 0\n"
    "INDEX, CALLBACKS = workers.this().index, []",
    "template": training_cases.MODULE.replace(
        "MirroredStrategy()", "MultiWorkerMirroredStrategy()"
    ).replace("batch_size=10,", "batch_size=10, shuffle=False,"),
}
FIT = "model.fit(train, steps_per_epoch=20, epochs=6, verbose=0, callbacks=CALLBACKS)"
# A failure in the first plan that worker 1 tries, which never happens again.
IN_TRIAL = """
    from tfx_perf.training.replicas import sync
    from tfx_perf.training.tuning.equivalence import EquivalenceCheck
    sync._PATIENCE_SECONDS = 10
    with model.distribute_strategy.scope():
        model.compile("adam", interrupted_workers.hungry_loss)
    own_check = EquivalenceCheck._check
    def check(self, plan):
        flag = pathlib.Path({flag!r})
        if INDEX == 1 and not flag.exists():
            flag.touch()
            {fault}
        return own_check(self, plan)
    EquivalenceCheck._check = check
    """


@pytest.mark.parametrize(
    ("fault", "cause", "note"),
    [
        ("interrupted_workers.limit_memory()", "on worker 1", "worker 1: FailedAloneError: "),
        ("os.kill(os.getpid(), 9)", "a worker ended in it", "worker 1: was killed (SIGKILL)"),
        ("raise ValueError('here alone')", "a worker ended in it", "worker "),
    ],
    ids=["memory", "killed", "alone"],
)
def test_a_plan_that_fails_on_one_worker_is_skipped(trainer, tmp_path, fault, cause, note):
    before = IN_TRIAL.format(flag=str(tmp_path / "flag"), fault=fault).strip()
    trainer.run(
        module={**MODULE, "train": f"{before}\n    {FIT}"}, distribution={"workers": 2}, seed=5,
        checkpoint_folder=str(tmp_path / "checkpoints"), checkpoint_every_steps=10,
        expected_runs=10**6, tuning_seconds=300,
    )  # fmt: skip
    record = trainer.record
    failed = [each for each in record.trials if each.status == "failed"]
    assert failed  # one or more, which differ in their steps per execution
    assert all(cause in each.reason and each.plan.steps_per_execution for each in failed)
    assert record.plan.is_plain_fit  # otherwise it would have trained with that plan, untried
    assert record.plan_reason == "a trial ended the workers"
    assert record.is_settled == ("memory" in fault)
    assert (record.train_step_count, record.oom_count) == (120, 0)
    assert f"the workers were started again after {note}" in " ".join(record.notes)
