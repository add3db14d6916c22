"""Lines that say what long work is doing."""

import pytest

from tfx_perf import pulse


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(pulse.time, "monotonic", lambda: now[0])
    return now


def told(clock, activity, *, until, every=1):
    """Returns when something was said and what."""
    clock[0], said = 0.0, []
    pulsing = pulse.Pulse(lambda what: said.append((clock[0], what)), longest_seconds=30.0)
    for seconds in range(0, until, every):
        clock[0] = float(seconds)
        activity(pulsing, seconds)
    return said


def test_a_line_comes_after_some_silence_and_more_rarely_while_the_same_is_done(clock):
    said = told(clock, lambda pulsing, at: pulsing(f"training: {at} steps done"), until=210)
    assert [when for when, _ in said] == [10, 20, 30, 40, 54, 72, 96, 126, 156, 186]
    assert said[-1][1] == "... training: 186 steps done"


def test_what_is_done_anew_is_said_as_soon_as_at_the_beginning(clock):
    said = told(
        clock, lambda pulsing, at: pulsing("saving" if at >= 125 else "training"), until=150
    )
    assert said[-3:] == [(when, "... saving") for when in (125, 135, 145)]
    assert told(clock, lambda pulsing, at: pulsing(""), until=11) == [(10, "... at work")]


def test_nothing_is_said_while_there_is_something_else_to_see(clock):
    def seeing(pulsing, at):
        if at < 50:
            pulsing.put_off()
        pulsing("training")

    assert [when for when, _ in told(clock, seeing, until=70)] == [66]
