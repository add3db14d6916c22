"""A process's own lines, its status and its last words; what libraries say is in a file."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests import processes
from tfx_perf.core import console

# Ways in which a library writes: Python's warnings and logs, C's file descriptor, a process.
_LIBRARY = """
import ctypes, logging, os, subprocess, sys, warnings
warnings.warn("foreign warning", FutureWarning)
logging.warning("foreign log")
ctypes.CDLL(None).write(2, b"foreign C\\n", 10)
subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write('foreign process\\\\n')"])
"""


def _run(folder: pathlib.Path, body: str) -> subprocess.CompletedProcess:
    (folder / "library.py").write_text(_LIBRARY)
    (folder / "program.py").write_text(f"from tfx_perf.core import console, errors\n{body}")
    environment = {**os.environ, "TMPDIR": str(folder / "temporary")}
    (folder / "temporary").mkdir(exist_ok=True)
    return processes.python("program.py", cwd=folder, env=environment)


def _logs(folder: pathlib.Path) -> list[pathlib.Path]:
    return list((folder / "temporary").iterdir())


def test_projects_from_templates_of_0_1_find_it_by_its_old_name():
    from tfx_perf import quiet

    assert quiet is console
    assert {"libraries", "script"} <= set(dir(quiet))


def test_only_own_lines_are_shown_and_nothing_is_left(tmp_path):
    done = _run(
        tmp_path,
        "import sys\n"
        "with console.libraries() as terminal:\n"
        "    import library\n"
        "    print('own line', file=terminal)\n"
        "print('afterwards', file=sys.stderr)\n",
    )
    assert done.returncode == 0
    assert done.stderr == "own line\nafterwards\n"
    assert _logs(tmp_path) == []


_LINES = {
    "TensorFlow": "2026-11-27 05:00:43.948947: W tensorflow/core/cache_dataset_ops.cc:858] The",
    "Abseil": "I0000 00:00:1795755653.126952   22169 service.cc:153]   StreamExecutor device",
    "early": "WARNING: All log messages before absl::InitializeLog() is called are written to",
}
_OWN = [
    "W1127 05:00:43.948947 22169 train.py:12] of absl in Python",
    "2026-11-27 05:00:43.948947: step 3",
    "2026-11-27 05:00:43.948947: F tensorflow/core/platform/env.cc:12] Check failed",
]


def test_logs_of_libraries_go_to_a_file_and_not_among_the_users_output(tmp_path):
    lines = [*_LINES.values(), *_OWN]
    body = (
        "import os, sys\n"
        "with console.library_logs_to('libraries.log'):\n"
        f"    for line in {lines!r}:\n"
        "        os.write(2, line.encode() + b'\\n')\n"
        "    print('50%', end='', file=sys.stderr, flush=True)\n"
        "    assert os.system('sleep 0.3; echo of a process >&2') == 0\n"
        f"os.write(2, {_LINES['TensorFlow']!r}.encode() + b'\\n')\n"
    )
    done = _run(tmp_path, body)
    shown = [*_OWN, "50%of a process", _LINES["TensorFlow"]]
    assert done.stderr.splitlines() == shown
    assert (tmp_path / "libraries.log").read_text().splitlines() == list(_LINES.values())


def test_without_library_logs_there_is_no_file(tmp_path):
    body = (
        "import sys\nwith console.library_logs_to('libraries.log'):\n"
        "    print('mine', file=sys.stderr)\n"
    )
    assert _run(tmp_path, body).stderr == "mine\n"
    assert not (tmp_path / "libraries.log").exists()


def test_the_last_words_of_a_process_that_crashes_get_through(tmp_path):
    body = (
        "import os\nwith console.library_logs_to(None):\n    os.write(2, b'why')\n    os.abort()\n"
    )
    assert _run(tmp_path, body).stderr == "why"


def test_a_named_log_stays_and_has_everything(tmp_path):
    log = tmp_path / "logs" / "run.log"
    log.parent.mkdir()
    log.write_text("of the run before\n")
    done = _run(tmp_path, f"with console.script({str(log)!r}):\n    import library\n")
    assert (done.returncode, done.stderr) == (0, "")
    text = log.read_text()
    for kind in ("warning", "log", "C", "process"):
        assert f"foreign {kind}\n" in text
    assert "before" not in text


def test_a_bug_of_the_user_is_shown_whole_with_the_place_of_the_log(tmp_path):
    done = _run(
        tmp_path,
        "def mine():\n    return {}['my key']\n\n"
        "with console.script():\n    import library\n    mine()\n",
    )
    assert done.returncode == 1
    (log,) = _logs(tmp_path)
    assert "foreign C" in log.read_text()
    assert done.stderr.startswith(f"Log: {log}\nTraceback (most recent call last):\n")
    assert "in mine" in done.stderr
    assert done.stderr.endswith("KeyError: 'my key'\n")
    assert "foreign" not in done.stderr


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (r"errors.UserError('Expected a.\n Received: b.')", 2,
         "program.py: Expected a. Received: b.\n"),
        ("SystemExit(3)", 3, ""),
    ],
)  # fmt: skip
def test_a_user_error_is_one_line_and_an_intended_exit_none(error, code, said, tmp_path):
    body = f"with console.script():\n    import library\n    raise {error}\n"
    done = _run(tmp_path, body)
    assert (done.returncode, done.stderr) == (code, said)
    assert _logs(tmp_path) == []


def test_all_that_is_written_goes_into_the_file_for_so_long(tmp_path):
    done = _run(
        tmp_path,
        "import sys\n"
        "print('before')\n"
        "with console.output_to_file('all.log'):\n"
        "    import library\n"
        "    print('inside')\n"
        "with console.output_to_file('all.log'):\n"
        "    print('again')\n"
        "print('afterwards', file=sys.stderr)\n",
    )
    assert (done.stdout, done.stderr) == ("before\n", "afterwards\n")
    written = (tmp_path / "all.log").read_text()
    for words in ("foreign C", "foreign log", "foreign process", "inside", "again"):
        assert words in written


_SAY = "from tfx_perf.core import console; console.set_status('two\\nlines')"


def test_the_last_status_is_read_also_from_a_child():
    with console.status_watched() as last:
        assert last() == ""
        console.set_status("one")
        assert last() == "one"
        subprocess.run([sys.executable, "-c", _SAY], check=True)
        assert last() == "two lines"
        console.set_status("")
        assert last() == ""


def test_without_a_listener_nothing_is_reported():
    before = dict(os.environ)
    assert not console.is_status_watched()
    console.set_status("to nobody")
    with console.status_watched() as outer, console.status_watched() as inner:
        assert console.is_status_watched()
        console.set_status("one")
        assert (outer(), inner()) == ("", "one")
    assert dict(os.environ) == before


def test_a_listener_that_has_left_does_not_stop_the_work(monkeypatch, tmp_path):
    monkeypatch.setenv("TFX_PERF_STATUS", str(tmp_path / "gone" / "status"))
    console.set_status("to nobody")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(console, "_LONGEST_STATUS_SECONDS", 30.0)
    now = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    return now


def _told(clock, work, *, until):
    """Returns when something was said and what."""
    clock[0], said = 0.0, []
    lines = console.StatusLines(lambda what: said.append((clock[0], what)))
    for seconds in range(until):
        clock[0] = float(seconds)
        work(lines, seconds)
    return said


def test_a_line_comes_after_some_silence_and_more_rarely_while_the_same_is_done(clock):
    said = _told(clock, lambda lines, at: lines(f"training: {at} steps done"), until=210)
    assert [when for when, _ in said] == [10, 20, 30, 40, 54, 72, 96, 126, 156, 186]
    assert said[-1][1] == "... training: 186 steps done"


def test_new_work_is_reported_as_soon_as_at_the_beginning(clock):
    said = _told(clock, lambda lines, at: lines("saving" if at >= 125 else "training"), until=150)
    assert said[-3:] == [(when, "... saving") for when in (125, 135, 145)]
    assert _told(clock, lambda lines, at: lines(""), until=11) == [(10, "... at work")]


def test_nothing_is_reported_while_other_output_is_visible(clock):
    def seeing(lines, at):
        if at < 50:
            lines.put_off()
        lines("training")

    assert [when for when, _ in _told(clock, seeing, until=70)] == [66]


def test_last_words_stand_below_everything_else_in_the_order_of_the_calls(tmp_path):
    done = _run(
        tmp_path,
        "import sys\n"
        "console.say_at_exit('first', '  its report')\n"
        "console.say_at_exit('second')\n"
        "print('a log line', file=sys.stderr)\n",
    )
    assert done.stderr.splitlines() == ["a log line", "first", "  its report", "second"]
    assert done.stdout == ""


_GARBAGE = """
class Cycle:
    def __init__(self):
        self.itself = self

    def __del__(self):
        print("collected")

Cycle()
"""


def test_a_process_in_a_hurry_looks_for_no_garbage_at_its_end(tmp_path):
    assert _run(tmp_path, _GARBAGE).stdout == "collected\n"
    assert _run(tmp_path, f"{_GARBAGE}\nconsole.end_without_collection()").stdout == ""
