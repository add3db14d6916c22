"""Standard error holds a program's own lines; what libraries say is in a file."""

import os
import pathlib
import subprocess
import sys

# What a library may do: Python's warnings and logs, C's file descriptor, and another process.
_LIBRARY = """
import ctypes, logging, os, subprocess, sys, warnings
warnings.warn("foreign warning", FutureWarning)
logging.warning("foreign log")
ctypes.CDLL(None).write(2, b"foreign C\\n", 10)
subprocess.run([sys.executable, "-c", "import sys; sys.stderr.write('foreign process\\\\n')"])
"""


def _run(folder: pathlib.Path, body: str) -> subprocess.CompletedProcess:
    (folder / "library.py").write_text(_LIBRARY)
    (folder / "program.py").write_text(f"from tfx_perf import errors, quiet\n{body}")
    environment = {**os.environ, "TMPDIR": str(folder / "temporary")}
    (folder / "temporary").mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "program.py"], cwd=folder, env=environment, capture_output=True,
        text=True, check=False,
    )  # fmt: skip


def _logs(folder: pathlib.Path) -> list[pathlib.Path]:
    return list((folder / "temporary").iterdir())


def test_only_own_lines_are_shown_and_nothing_is_left(tmp_path):
    done = _run(
        tmp_path,
        "import sys\n"
        "with quiet.libraries() as terminal:\n"
        "    import library\n"
        "    print('own line', file=terminal)\n"
        "print('afterwards', file=sys.stderr)\n",
    )
    assert done.returncode == 0
    assert done.stderr == "own line\nafterwards\n"
    assert _logs(tmp_path) == []


def test_a_named_log_stays_and_has_everything(tmp_path):
    log = tmp_path / "logs" / "run.log"
    log.parent.mkdir()
    log.write_text("of the run before\n")
    done = _run(tmp_path, f"with quiet.script({str(log)!r}):\n    import library\n")
    assert (done.returncode, done.stderr) == (0, "")
    text = log.read_text()
    for kind in ("warning", "log", "C", "process"):
        assert f"foreign {kind}\n" in text
    assert "before" not in text


def test_a_bug_of_the_user_is_shown_whole_with_the_place_of_the_log(tmp_path):
    done = _run(
        tmp_path,
        "def mine():\n    return {}['my key']\n\n"
        "with quiet.script():\n    import library\n    mine()\n",
    )
    assert done.returncode == 1
    (log,) = _logs(tmp_path)
    assert "foreign C" in log.read_text()
    assert done.stderr.startswith(f"Log: {log}\nTraceback (most recent call last):\n")
    assert "in mine" in done.stderr
    assert done.stderr.endswith("KeyError: 'my key'\n")
    assert "foreign" not in done.stderr


def test_what_the_user_got_wrong_is_one_line_and_exit_code_2(tmp_path):
    done = _run(
        tmp_path,
        "with quiet.script():\n    import library\n"
        "    raise errors.UserError('Expected a.\\n Received: b.')\n",
    )
    assert (done.returncode, done.stderr) == (2, "program.py: Expected a. Received: b.\n")
    assert _logs(tmp_path) == []


def test_an_end_on_purpose_says_nothing(tmp_path):
    done = _run(tmp_path, "with quiet.script():\n    import library\n    raise SystemExit(3)\n")
    assert (done.returncode, done.stderr) == (3, "")
    assert _logs(tmp_path) == []




def test_all_that_is_written_goes_into_the_file_for_so_long(tmp_path):
    done = _run(
        tmp_path,
        "import sys\n"
        "print('before')\n"
        "with quiet.all_into('all.log'):\n"
        "    import library\n"
        "    print('inside')\n"
        "with quiet.all_into('all.log'):\n"
        "    print('again')\n"
        "print('afterwards', file=sys.stderr)\n",
    )
    assert (done.stdout, done.stderr) == ("before\n", "afterwards\n")
    written = (tmp_path / "all.log").read_text()
    for words in ("foreign C", "foreign log", "foreign process", "inside", "again"):
        assert words in written
