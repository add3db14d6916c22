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


def test_the_time_between_two_calls_grows_to_what_has_passed():
    calls = []
    grows = {"seconds": 0.01, "longest_seconds": 60.0}
    with periodic.calling(lambda: calls.append(time.monotonic()), **grows):
        time.sleep(0.5)
    assert 1 <= len(calls) <= 7  # after 0.01, 0.02, 0.04, 0.08, 0.16, 0.32 and 0.64 seconds
