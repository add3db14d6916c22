"""Calls that are made periodically beside other work."""

import threading
import time

import pytest

from tfx_perf.core import periodic


class Calls:
    """Keeps when it was called.

    Attributes:
        several: set once there were three calls.
    """

    def __init__(self):
        self.times = []
        self.several = threading.Event()

    def __call__(self):
        self.times.append(time.monotonic())
        if len(self.times) == 3:
            self.several.set()


def test_calls_come_while_the_context_lasts_and_not_after():
    calls = Calls()
    with periodic.calling(calls, seconds=0.01):
        assert calls.several.wait(60)
    count = len(calls.times)
    assert all(
        later - earlier >= 0.01
        for earlier, later in zip(calls.times, calls.times[1:], strict=False)
    )
    time.sleep(0.1)
    assert len(calls.times) == count


def test_an_error_of_the_context_is_its_own():
    calls = Calls()
    with pytest.raises(KeyError), periodic.calling(calls, seconds=0.01):
        assert calls.several.wait(60)
        raise KeyError
