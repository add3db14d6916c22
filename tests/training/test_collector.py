"""Python's garbage collector during a training."""

import gc

import pytest

from tfx_perf.training.measuring import collector


def test_existing_objects_are_skipped_and_pauses_are_measured():
    before = gc.get_freeze_count()
    with collector.spared() as pauses:
        assert gc.get_freeze_count() > before
        assert pauses.seconds == 0
        gc.collect()
    assert pauses.seconds > 0
    assert gc.get_freeze_count() == 0
    measured = pauses.seconds
    gc.collect()
    assert pauses.seconds == measured


@pytest.fixture(autouse=True)
def nothing_stays_frozen():
    """Nor does anything frozen by earlier tests or by pytest itself."""
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_objects_that_users_froze_stay_frozen():
    gc.freeze()
    frozen = gc.get_freeze_count()
    with pytest.raises(RuntimeError), collector.spared() as pauses:
        gc.collect()
        raise RuntimeError
    assert pauses.seconds > 0
    assert gc.get_freeze_count() > 0.9 * frozen  # some of it has been freed


def test_the_inner_of_two_leaves_frozen_what_the_outer_froze():
    with collector.spared():
        with pytest.raises(RuntimeError), collector.spared():
            raise RuntimeError
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


def test_callbacks_that_users_clear_do_not_end_a_training():
    before = list(gc.callbacks)
    with collector.spared():
        gc.callbacks.clear()
    gc.callbacks[:] = before


def test_garbage_of_the_training_itself_is_collected():
    class Node:
        alive = 0

        def __init__(self):
            Node.alive += 1
            self.cycle = self

        def __del__(self):
            Node.alive -= 1

    with collector.spared():
        Node()
        gc.collect()
        assert Node.alive == 0
