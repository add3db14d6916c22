"""What a worker that runs out of memory leaves for all that begin again.

That they do is in `test_interrupted_workers.py`.
"""

import types

import pytest

from tfx_perf.core import errors
from tfx_perf.training.optimizations.plan import TrainingPlan
from tfx_perf.training.recovery.checkpoint_store import CheckpointStore
from tfx_perf.training.recovery.shortage import Shortage, Shortages
from tfx_perf.training.recovery.training_state import Writers
from tfx_perf.training.replicas.sync import ShortOfMemoryError

TWO = Writers(workers=2, replicas=2)
PLAN = TrainingPlan(steps_per_call=10, micro_batches=2)
SECOND = types.SimpleNamespace(rank=1, size=2, all_equal=lambda own: True)


def shortages(folder, writers=TWO):
    return Shortages(folder, sync=SECOND, writers=writers)


def end_step(folder, *, batch_rows=64, obstacle=None):
    shortages(folder).end_step(
        MemoryError("none left"), PLAN, batch_rows=batch_rows, obstacle=obstacle
    )


def test_it_is_found_until_it_is_forgotten(tmp_path):
    folder = tmp_path / "training"
    assert (shortages(folder).left, shortages(folder).count) == (None, 0)
    for count in (1, 2):
        with pytest.raises(ShortOfMemoryError, match="none left on worker 1 with a batch of 64"):
            end_step(folder)
        left = Shortage(worker=1, micro_batches=2, count=count, writers=TWO)
        assert (shortages(folder).left, shortages(folder).count) == (left, count)
    CheckpointStore(folder).clear()
    assert shortages(folder).left is None
    assert not folder.exists()


def test_others_and_other_versions_begin_with_whole_batches(tmp_path):
    with pytest.raises(ShortOfMemoryError):
        end_step(tmp_path)
    assert shortages(tmp_path, Writers(workers=3, replicas=3)).left is None
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text().replace("shortage/1", "shortage/0"))
    assert shortages(tmp_path).left is None


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ({"batch_rows": 4}, "each slice has one row"),
        ({"obstacle": "the model has its own train_step"}, "the model has its own train_step"),
        ({"has_folder": False}, "there is no training.checkpoint_folder"),
        ({"is_file": True}, "what the others must know cannot be written"),
    ],
    ids=["one row", "an obstacle", "no folder", "no place"],
)
def test_what_cannot_be_cut_is_an_error_of_the_user(step, why, tmp_path):
    folder = tmp_path / "training"
    if step.pop("is_file", False):
        folder.touch()
    if not step.pop("has_folder", True):
        folder = None
    with pytest.raises(errors.UserError, match=f"It cannot be cut: {why}"):
        end_step(folder, **step)
    assert shortages(folder).left is None
