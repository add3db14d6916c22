"""The folder of checkpoints survives any damage, and a second training that uses it."""

import logging
import subprocess
import sys

import model_cases
import pytest
from model_cases import captured

from tfx_perf.config import PerfConfig
from tfx_perf.core import errors
from tfx_perf.training.recovery import checkpoint_store
from tfx_perf.training.recovery.checkpoint import Checkpoint
from tfx_perf.training.recovery.checkpoint_store import KEPT, CheckpointStore
from tfx_perf.training.recovery.folder_lock import FolderLock
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.speedups.plan import PLAIN_FIT


def save(store, step, text="state"):
    def fill(folder):
        (folder / "state").write_text(f"{text} {step}")
        return Checkpoint(step=step, epoch=0, step_in_epoch=step, fingerprint={}, plan=PLAIN_FIT)

    store.save(fill)


def latest_step(store):
    found = store.latest()
    return found and found[1].step


@pytest.fixture
def store(tmp_path):
    store = CheckpointStore(tmp_path / "checkpoints")
    for step in (5, 10, 15):
        save(store, step)
    return store


def test_the_newest_few_are_kept(store):
    save(store, 20)
    assert latest_step(store) == 20
    folder, checkpoint = store.latest()
    assert (folder / "state").read_text() == "state 20"
    assert list(checkpoint.files) == ["state"]
    assert len(list(store.folder.iterdir())) == KEPT


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "state").write_text("state 1"),  # cut short
        lambda folder: (folder / "state").write_text("state 16"),  # one bit
        lambda folder: (folder / "state").unlink(),
        lambda folder: (folder / "manifest.json").write_text("{"),
        lambda folder: (folder / "manifest.json").unlink(),
        lambda folder: (folder / "manifest.json").write_text(
            (folder / "manifest.json").read_text().replace('"step": 15', '"step": 16')
        ),
    ],
)
def test_a_damaged_checkpoint_is_skipped_and_named(store, damage, caplog):
    newest, _ = store.latest()
    damage(newest)
    with caplog.at_level(logging.WARNING):
        assert latest_step(store) == 10
    assert str(newest) in caplog.text
    save(store, 12)  # the training has resumed from 10
    assert not newest.exists()
    assert latest_step(store) == 12


def test_a_checkpoint_that_cannot_be_read_for_now_is_kept(store, monkeypatch):
    newest, own = store.latest()[0], checkpoint_store._digest

    def digest(path):
        if path.parent == newest:
            raise OSError(5, "Input/output error")
        return own(path)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_store, "_digest", digest)
        assert latest_step(store) == 10
        save(store, 12)
    assert latest_step(store) == 15


def test_a_failing_save_leaves_other_checkpoints_alone(store):
    def fill(folder):
        (folder / "state").write_text("half")
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space"):
        store.save(fill)
    assert latest_step(store) == 15
    assert len(list(store.folder.iterdir())) == 3


def test_a_draft_of_a_killed_process_is_no_checkpoint(store):
    draft = store.folder / "draft-99"
    draft.mkdir()
    (draft / "state").write_text("half")
    assert latest_step(store) == 15
    save(store, 20)
    assert not draft.exists()


def test_clearing_takes_only_checkpoints(store):
    (store.folder / "mine").write_text("")
    store.clear()
    assert [path.name for path in store.folder.iterdir()] == ["mine"]
    assert store.latest() is None


HOLD = """
import sys, time
from tfx_perf.training.recovery.folder_lock import FolderLock
lock = FolderLock(sys.argv[1])
lock.acquire()
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that trains with the folder."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.mark.slow
def test_a_second_training_is_refused_and_touches_nothing(keras, tmp_path, holder):
    draft = tmp_path / "fit-0" / "abc" / "draft-1"
    draft.mkdir(parents=True)
    settings = PerfConfig.from_dict({"training": {"checkpoint_folder": str(tmp_path)}})
    call = captured(model_cases.dense(keras), model_cases.regression())
    with pytest.raises(errors.UserError, match="no other training uses. Received") as caught:
        TrainingSession(settings).fit(call)
    assert "\n" not in str(caught.value)
    assert draft.exists()
    assert int(call.model.optimizer.iterations) == 0
    holder.kill()
    holder.wait()
    session = TrainingSession(settings)
    session.fit(call)
    session.close()
    assert int(call.model.optimizer.iterations) > 0
    assert not list(tmp_path.glob("*.lock"))


def test_where_no_lock_can_be_written_the_training_continues(tmp_path, caplog):
    (tmp_path / "file").touch()
    FolderLock(tmp_path / "file" / "folder").acquire()
    assert "is not locked" in caplog.text
