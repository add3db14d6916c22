"""Calls beside something else."""

import time

import pytest

from tfx_perf import periodic


def test_calls_come_while_the_context_lasts_and_not_after():
    calls = []
    with periodic.calling(lambda: calls.append(time.monotonic()), seconds=0.01):
        time.sleep(0.3)
    count = len(calls)
    assert count >= 3
    assert all(later - earlier >= 0.01 for earlier, later in zip(calls, calls[1:], strict=False))
    time.sleep(0.1)
    assert len(calls) == count


def test_an_error_of_the_context_is_its_own():
    calls = []
    with pytest.raises(KeyError), periodic.calling(lambda: calls.append(1), seconds=0.01):
        time.sleep(0.1)
        raise KeyError
    assert calls
