"""What long work says while it lasts."""

import os
import subprocess
import sys

from tfx_perf import activity

_SAY = "from tfx_perf import activity; activity.say('two\\nlines')"


def test_what_was_said_last_is_read_also_from_a_child():
    with activity.watched() as last:
        assert last() == ""
        activity.say("one")
        assert last() == "one"
        subprocess.run([sys.executable, "-c", _SAY], check=True)
        assert last() == "two lines"
        activity.say("")
        assert last() == ""


def test_without_anybody_who_waits_nothing_is_said():
    before = dict(os.environ)
    assert not activity.is_watched()
    activity.say("to nobody")
    with activity.watched() as outer, activity.watched() as inner:
        assert activity.is_watched()
        activity.say("one")
        assert (outer(), inner()) == ("", "one")
    assert dict(os.environ) == before


def test_one_who_has_gone_is_no_reason_to_stop(monkeypatch, tmp_path):
    monkeypatch.setenv("TFX_PERF_ACTIVITY", str(tmp_path / "gone" / "activity"))
    activity.say("to nobody")
    assert not list(tmp_path.iterdir())
