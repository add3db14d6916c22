"""Python's garbage collector during a training."""

import gc

from tfx_perf.training.measuring import collector


def test_what_existed_is_spared_and_pauses_are_measured():
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
