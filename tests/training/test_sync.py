"""What workers decide together (`sync`).

Real ones are in `test_interrupted_workers` and `test_replicas`.
"""

import numpy as np
import pytest
import tensorflow as tf

from tfx_perf.config.training import TrainingSettings
from tfx_perf.training.recovery import guard
from tfx_perf.training.recovery.checkpoint_store import CheckpointStore
from tfx_perf.training.recovery.saver import SaveClock, Saver
from tfx_perf.training.replicas.sync import (
    FailedAloneError,
    LostWorkerError,
    Sync,
    SyncError,
    may_pass,
)


class SyncOfTwo(Sync):
    """Its other worker says what it is told to."""

    def __init__(self, *, rank=0, other=(0, 0, 0)):
        super().__init__()
        self.rank, self.size, self.other = rank, 2, other
        self.asked = 0

    def all_gather(self, own):
        self.asked += 1
        return np.array([own, list(self.other)[: len(own)]], np.int64)


def fail():
    raise OSError("the disk is full")


def test_a_process_alone_asks_nobody():
    sync = Sync()
    assert (sync.rank, sync.size) == (0, 1)
    assert sync.all_equal("anything")
    assert (sync.broadcast(True), sync.broadcast(0.1)) == (True, 0.1)
    assert sync.barrier(lambda: 3) == sync.barrier(lambda: 3, chief_only=True) == 3
    with pytest.raises(OSError, match="full"):
        sync.barrier(fail)


def test_where_one_worker_fails_none_goes_on():
    with pytest.raises(OSError, match="full"):
        SyncOfTwo(other=(1,)).barrier(fail)
    with pytest.raises(SyncError):
        SyncOfTwo(other=(0,)).barrier(lambda: 3)
    other = SyncOfTwo(rank=1, other=(1,))
    assert other.barrier(fail, chief_only=True) is None  # it only waits


@pytest.mark.parametrize(
    "error", [MemoryError("none left"), tf.errors.ResourceExhaustedError(None, None, "none left")]
)
def test_a_worker_that_runs_out_of_memory_alone_does_not_wait_for_the_others(error):
    with (
        pytest.raises(FailedAloneError, match="none left on worker 1") as raised,
        SyncOfTwo(rank=1).after(error),
    ):
        pass
    assert may_pass(raised.value)
    with Sync().after(error):  # there is nobody who waits
        pass
    with SyncOfTwo().after(ValueError("as on all of them, perhaps")):
        pass
    with pytest.raises(LostWorkerError), SyncOfTwo().after(LostWorkerError("gone")):
        pass


def test_a_checkpoint_is_there_only_if_all_parts_are(tmp_path):
    store = CheckpointStore(tmp_path, sync=SyncOfTwo(other=(0,)))
    with pytest.raises(SyncError):
        store.save(fail)
    assert not list(tmp_path.iterdir())


def decisions_of(sync, told=()):
    """`told` is not empty once this worker was told to end."""
    return guard.Decisions(sync, is_told_to_end=lambda: bool(told))


def test_a_process_alone_decides_at_once():
    told = []
    own = decisions_of(Sync(), told)
    own.take(is_due=True, must=False)
    assert (own.is_due, own.is_ending) == (True, False)
    told.append("SIGTERM")
    assert own.is_ending
    own.take(is_due=False, must=False)
    assert not own.is_due


def test_workers_save_and_end_if_one_of_them_would():
    sync = SyncOfTwo(other=(1, 0, 0))
    ours = decisions_of(sync)
    ours.take(is_due=False, must=False)
    assert (ours.is_due, ours.is_ending) == (True, False)
    sync.other = (0, 1, 0)
    ours.take(is_due=False, must=False)
    assert (ours.is_due, ours.is_ending) == (False, True)


def test_a_worker_that_is_told_to_end_waits_for_the_others():
    told = ["SIGTERM"]
    ours = decisions_of(SyncOfTwo(), told)
    assert not ours.is_ending
    ours.take(is_due=False, must=False)
    assert ours.is_ending


def test_they_ask_each_other_when_all_have_come_to_the_same_call(monkeypatch):
    monkeypatch.setattr(guard, "_PERIOD_SECONDS", 1e9)
    sync = SyncOfTwo(other=(0, 0, 5))  # the slower one makes five calls in that time
    ours = decisions_of(sync)
    for _ in range(7):
        ours.take(is_due=True, must=False)
    assert sync.asked == 2  # at the first call, and after five more
    ours.take(is_due=False, must=True)
    assert sync.asked == 3


def test_a_checkpoint_that_a_lost_worker_lacks_ends_the_training(tmp_path, monkeypatch):
    sync = SyncOfTwo()
    monkeypatch.setattr(sync, "all_gather", lambda own: lose())
    store = CheckpointStore(tmp_path, sync=sync)
    with pytest.raises(LostWorkerError, match="does not answer"):
        saver = Saver(store, clock=SaveClock(), settings=TrainingSettings())
        saver.save(3, lambda: store.save(lambda folder: None))


def lose():
    raise LostWorkerError("another worker has ended, or does not answer")


def test_errors_of_connections_are_told_from_others():
    assert may_pass(LostWorkerError())
    assert may_pass(tf.errors.UnavailableError(None, None, "reset"))
    assert may_pass(ConnectionResetError())
    assert not may_pass(tf.errors.InvalidArgumentError(None, None, "shape"))
    assert not may_pass(OSError("no space left"))
