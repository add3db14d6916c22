"""Decisions that workers take together (`sync`), and data that one of them leaves for the others.

These are its part of a checkpoint, a `shortage` of memory, no batch for another one (`together`)
and the energy of its host. Real workers are in `test_interrupted_workers`, `test_collectives`,
`test_communication` and `test_replicas`.
"""

import pathlib
import types

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python.data.experimental.ops import distribute

from tfx_perf.config.training import TrainingSettings
from tfx_perf.core import errors
from tfx_perf.distribute import as_one_device
from tfx_perf.distribute.failure import may_pass
from tfx_perf.hardware import energy
from tfx_perf.hardware.energy import Energy
from tfx_perf.training.recovery import guard
from tfx_perf.training.recovery.checkpoint_store import CheckpointStore
from tfx_perf.training.recovery.checkpoint_writer import CheckpointSchedule, CheckpointWriter
from tfx_perf.training.recovery.shortage import Shortage, Shortages
from tfx_perf.training.recovery.training_state import Writers, redistributed
from tfx_perf.training.replicas.sync import (
    FailedAloneError,
    LostWorkerError,
    ShortOfMemoryError,
    Sync,
    SyncError,
)
from tfx_perf.training.speedups.plan import TrainingPlan


class SyncOfTwo(Sync):
    """The answers of its other worker are given."""

    def __init__(self, *, rank=0, other=(0, 0, 0)):
        super().__init__()
        self.rank, self.size, self.other = rank, 2, other
        self.asked = 0

    def all_gather(self, own):
        self.asked += 1
        return np.array([own, list(self.other)[: len(own)]], np.int64)


def fail():
    raise OSError("the disk is full")


def test_a_single_process_asks_no_other():
    sync = Sync()
    assert (sync.rank, sync.size) == (0, 1)
    assert sync.all_equal("anything")
    assert (sync.broadcast(True), sync.broadcast(0.1)) == (True, 0.1)
    assert sync.barrier(lambda: 3) == sync.barrier(lambda: 3, chief_only=True) == 3
    with pytest.raises(OSError, match="full"):
        sync.barrier(fail)


def test_if_one_worker_fails_none_continues():
    with pytest.raises(OSError, match="full"):
        SyncOfTwo(other=(1,)).barrier(fail)
    with pytest.raises(SyncError):
        SyncOfTwo(other=(0,)).barrier(lambda: 3)
    other = SyncOfTwo(rank=1, other=(1,))
    assert other.barrier(fail, chief_only=True) is None  # a worker that is not chief only waits


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
    with Sync().after(error):  # no other worker waits
        pass
    with SyncOfTwo().after(ValueError("as on all of them, perhaps")):
        pass
    with pytest.raises(LostWorkerError), SyncOfTwo().after(LostWorkerError("gone")):
        pass


def test_a_checkpoint_exists_only_if_all_its_parts_do(tmp_path):
    store = CheckpointStore(tmp_path, sync=SyncOfTwo(other=(0,)))
    with pytest.raises(SyncError):
        store.save(fail)
    assert not list(tmp_path.iterdir())


def decisions_of(sync, told=()):
    """`told` is not empty once this worker has received the signal to end."""
    return guard.Decisions(sync, is_told_to_end=lambda: bool(told))


def test_a_single_process_decides_at_once():
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


def test_a_worker_with_a_signal_to_end_waits_for_the_others():
    told = ["SIGTERM"]
    ours = decisions_of(SyncOfTwo(), told)
    assert not ours.is_ending
    ours.take(is_due=False, must=False)
    assert ours.is_ending


def test_they_ask_each_other_when_all_have_reached_the_same_call(monkeypatch):
    monkeypatch.setattr(guard, "_PERIOD_SECONDS", 1e9)
    sync = SyncOfTwo(other=(0, 0, 5))  # the slower one makes five calls in that time
    ours = decisions_of(sync)
    for _ in range(7):
        ours.take(is_due=True, must=False)
    assert sync.asked == 2  # at the first call, and after five more
    ours.take(is_due=False, must=True)
    assert sync.asked == 3


def test_a_checkpoint_without_the_part_of_a_lost_worker_ends_the_training(tmp_path, monkeypatch):
    sync = SyncOfTwo()
    monkeypatch.setattr(sync, "all_gather", lambda own: lose())
    store = CheckpointStore(tmp_path, sync=sync)
    with pytest.raises(LostWorkerError, match="does not answer"):
        writer = CheckpointWriter(store, clock=CheckpointSchedule(), settings=TrainingSettings())
        writer.save(3, lambda: store.save(lambda folder: None))


def lose():
    raise LostWorkerError("another worker has ended, or does not answer")


def test_connection_errors_are_distinguished_from_others():
    assert may_pass(LostWorkerError())
    assert may_pass(tf.errors.UnavailableError(None, None, "reset"))
    assert may_pass(ConnectionResetError())
    assert not may_pass(tf.errors.InvalidArgumentError(None, None, "shape"))
    assert not may_pass(OSError("no space left"))


TWO = Writers(workers=2, replicas=2)
PLAN = TrainingPlan(steps_per_execution=10, micro_batches=2)
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


def test_other_trainings_and_versions_begin_with_whole_batches(tmp_path):
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
        ({"has_folder": False}, "training.checkpoint_folder, through which"),
        ({"is_file": True}, "the record for the other workers cannot be written"),
    ],
    ids=["one row", "an obstacle", "no folder", "no place"],
)
def test_a_batch_that_cannot_be_sliced_is_a_user_error(step, why, tmp_path):
    folder = tmp_path / "training"
    if step.pop("is_file", False):
        folder.touch()
    if not step.pop("has_folder", True):
        folder = None
    with pytest.raises(errors.UserError, match=f"It cannot be cut: {why}"):
        end_step(folder, **step)
    assert shortages(folder).left is None


_SUM, _MEAN = tf.VariableAggregation.SUM, tf.VariableAggregation.MEAN
_FIRST, _NONE = tf.VariableAggregation.ONLY_FIRST_REPLICA, tf.VariableAggregation.NONE


@pytest.mark.parametrize(
    ("aggregation", "count", "expected"),
    [
        (_SUM, 3, [[6.0, 12.0], [0.0, 0.0], [0.0, 0.0]]),
        (_SUM, 1, [[6.0, 12.0]]),
        (_MEAN, 2, [[3.0, 6.0], [3.0, 6.0]]),
        (_FIRST, 3, [[2.0, 4.0], [4.0, 8.0], [2.0, 4.0]]),
        (_NONE, 1, [[2.0, 4.0]]),
    ],
)
def test_the_initial_values_of_each_replica(aggregation, count, expected):
    values = [np.array([2, 4], np.float32), np.array([4, 8], np.float32)]
    found = [redistributed(values, aggregation, replica=replica) for replica in range(count)]
    np.testing.assert_array_equal(found, expected)
    assert {each.dtype for each in found} == {np.dtype("float32")}


def test_each_worker_has_its_own_part_of_a_checkpoint():
    folder = pathlib.Path("checkpoint")
    three = Writers(workers=3, replicas=3)
    assert [three.part(folder, worker).name for worker in range(4)] == [
        "worker-0", "worker-1", "worker-2", "worker-0"
    ]  # fmt: skip
    assert Writers().part(folder, 1) == folder
    words = [str(three), str(Writers(replicas=2)), str(Writers())]
    assert words == ["3 workers", "2 replicas", "one device"]


_NOTHING = tf.data.Dataset.from_tensor_slices((np.zeros((0, 1)),) * 2).batch(8).repeat()


def fit_in_tf_keras(data):
    model = tf_keras.Sequential([tf_keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(data, steps_per_epoch=1, verbose=0)


def take_of_one_file(_):
    lines = tf.data.TextLineDataset(__file__)
    next(iter(distribute._AutoShardDataset(lines, 2, 0)))


@pytest.mark.parametrize(
    ("take", "received"),
    [
        (lambda data: next(iter(data)), "none for worker 1"),
        (fit_in_tf_keras, "none for worker 1"),
        (take_of_one_file, "fewer files than workers"),
    ],
)
def test_a_worker_without_a_batch_learns_how_to_divide_the_rows(take, received):
    with (
        pytest.raises(errors.UserError, match=f"Received: {received}.*AutoShardPolicy.DATA"),
        as_one_device.checking_share(SyncOfTwo(rank=1)),
    ):
        take(_NOTHING)


def test_other_errors_are_unchanged():
    with (
        pytest.raises(ValueError, match="no such column"),
        as_one_device.checking_share(SyncOfTwo(rank=1)),
    ):
        raise ValueError("no such column")
    with pytest.raises(StopIteration), as_one_device.checking_share(Sync()):
        next(iter(_NOTHING))


class Told(Sync):
    """Each worker has counted energy."""

    def __init__(self, *energies):
        super().__init__()
        self.size, self.said = len(energies), []
        for each in energies:
            self.own = []
            energy.of_all_hosts(each, self)
            self.said.append(self.own)

    def all_gather(self, own):
        self.own = [int(part) for part in own]
        return np.array(self.said if len(self.said) == self.size else [self.own], np.int64)


def of_all(*energies):
    return energy.of_all_hosts(energies[0], Told(*energies))


def test_hosts_are_added_up_and_what_workers_share_is_counted_once():
    found = of_all(
        Energy(by_meter={"RAPL of a": 10.0, "GPU-0": 1.5}),
        Energy(by_meter={"RAPL of a": 10.25, "GPU-1": 2.0}),
        Energy(by_meter={"RAPL of b": 20.0}),
    )
    assert found.joules == pytest.approx(10.25 + 1.5 + 2.0 + 20.0)
    assert found.reason == ""


def test_no_total_is_known_if_one_worker_has_counted_nothing():
    found = of_all(Energy(by_meter={"RAPL of a": 10.0}), Energy(reason="no RAPL"))
    assert (found.joules, found.reason) == (None, "other workers have not counted everything")
    found = of_all(Energy(by_meter={"RAPL of a": 10.0}, reason="no GPU"), Energy(reason="no RAPL"))
    assert (found.joules, found.reason) == (None, "no GPU")


def test_a_single_process_gets_its_own_count():
    own = Energy(by_meter={"RAPL of a": 10.0})
    assert energy.of_all_hosts(own, Sync()) is own
