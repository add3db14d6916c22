"""Heartbeats: who counts as silent, and for how long."""

import os

import pytest

from tfx_perf.distribute.parameter_server import heartbeat


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

    found = Clock()
    monkeypatch.setattr(heartbeat, "time", found)
    return found


def beat(path, number):
    path.touch()
    os.utime(path, ns=(number, number))


def test_before_the_first_heartbeat_no_process_is_silent(tmp_path, clock):
    beat(tmp_path / "beat", 1)  # of the process before
    listener = heartbeat.Listener(tmp_path / "beat")
    for clock.now in (0.5, 1.0, 100.0):
        assert listener.silent_seconds() == 0


def test_silence_is_counted_from_the_last_heartbeat(tmp_path, clock):
    listener = heartbeat.Listener(tmp_path / "beat")
    beat(tmp_path / "beat", 1)
    found = []
    for clock.now in (1.0, 1.5, 2.5, 3.0):
        found.append(listener.silent_seconds())
    beat(tmp_path / "beat", 2)
    assert [*found, listener.silent_seconds()] == [0, 0.5, 1.5, 2.0, 0]


def test_time_in_which_the_listener_was_stopped_itself_does_not_count(tmp_path, clock):
    listener = heartbeat.Listener(tmp_path / "beat")
    beat(tmp_path / "beat", 1)
    for clock.now in (1.0, 1000.0):
        silent = listener.silent_seconds()
    assert silent == 1.0


def test_without_a_listener_no_file_is_made(tmp_path, monkeypatch):
    monkeypatch.delenv(heartbeat.VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    with heartbeat.given():
        assert list(tmp_path.iterdir()) == []
