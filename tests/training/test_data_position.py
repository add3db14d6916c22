"""Reading of data resumes where it stopped, and later passes come in the same order."""

import time

import pytest
import tensorflow as tf
from model_cases import without_autotune

from tfx_perf.core import errors
from tfx_perf.tf_internals import ancestry
from tfx_perf.tf_internals.iterators import FitIterators
from tfx_perf.training.recovery.data_position import DataPosition, PositionSnapshot

pytestmark = pytest.mark.each_choice

ROWS, BATCH, PASSES = 10, 2, 3
BATCHES = ROWS // BATCH


def shuffled(*, prefetch, repeats):
    data = tf.data.Dataset.range(ROWS).shuffle(ROWS, seed=7)
    data = data.repeat(repeats) if repeats else data
    return without_autotune(data.batch(BATCH).prefetch(prefetch))


def read(data, folder, *, epoch_length, makes_new, stop_at=None, resume=None, forgets=False):
    """Reads epochs as Keras 3 does, with an unused iterator; returns batches and the position."""
    iterators = FitIterators()
    known = iterators.over(data)
    position, found, first = DataPosition(iterators), [], True
    begin = resume[:2] if resume else (0, 0)
    for epoch in range(begin[0], PASSES):
        if makes_new or epoch == begin[0]:
            iterator = iter(known)
        position.follow(iterator)
        if resume and first:
            position.restore(PositionSnapshot.read(resume[2], folder))
        used = position.follow(iterator)
        for step in range(begin[1] if first else 0, epoch_length):
            found.append(next(used).numpy().tolist())
            position.count_taken(1)
            if len(found) == stop_at:
                time.sleep(0.01)  # prefetching reads ahead as far as it can
                captured = position.snapshot()
                if forgets:
                    where = captured.position.model_copy(update={"is_saved": False})
                    captured = PositionSnapshot(where)
                return found, (epoch, step + 1, captured.write(folder))
        first = False
        if makes_new:
            spare = iter(known)  # noqa: F841 (draws seeds, as Keras' does)
    return found, None


@pytest.mark.one_case
@pytest.mark.parametrize("forgets", [False, True], ids=["saved", "read again"])
@pytest.mark.parametrize("repeats", [None, 2, -1], ids=["finite", "repeated", "endless"])
@pytest.mark.parametrize("prefetch", [1, 20])
def test_the_order_is_the_same_as_without_an_interruption(tmp_path, prefetch, repeats, forgets):
    kind = {
        "epoch_length": 7 if repeats == -1 else BATCHES * (repeats or 1),
        "makes_new": repeats != -1,
    }
    whole, _ = read(shuffled(prefetch=prefetch, repeats=repeats), tmp_path, **kind)
    for stop_at in range(1, len(whole)):
        folder = tmp_path / str(stop_at)
        folder.mkdir()
        data = shuffled(prefetch=prefetch, repeats=repeats)
        before, point = read(data, folder, stop_at=stop_at, forgets=forgets, **kind)
        data = shuffled(prefetch=prefetch, repeats=repeats)
        after, _ = read(data, folder, resume=point, **kind)
        assert before + after == whole, f"stopped at {stop_at}"


def test_data_that_can_be_read_only_once_are_refused(tmp_path):
    stream = iter(range(ROWS))
    spec = tf.TensorSpec([], tf.int32)
    once = tf.data.Dataset.from_generator(lambda: stream, output_signature=spec)
    _, point = read(once, tmp_path, epoch_length=8, makes_new=False, stop_at=6)
    assert not point[2].is_saved
    with pytest.raises(errors.UserError, match="they end after . of 6 batches"):
        read(once, tmp_path, epoch_length=8, makes_new=False, resume=point)


def test_tensorflow_is_not_asked_to_save_what_shuffles_keras_arrays(capfd):
    tf.keras.utils.set_random_seed(1)
    rows = tf.data.Dataset.range(PASSES).map(lambda _: tf.random.shuffle(tf.range(BATCH)))
    iterators = FitIterators()
    known = iterators.over(ancestry.ArrayDataset(rows, arrays=[], batch_size=BATCH))
    position = DataPosition(iterators)
    position.follow(iter(known))
    assert not position.snapshot().position.is_saved
    assert position.note == "RandomShuffle is stateful"
    assert "stateful" not in capfd.readouterr().err  # where TensorFlow logs two errors
