"""Standard error holds a program's own lines; what libraries say is in a file (`sieve`)."""

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


def test_what_libraries_log_is_sifted_out_of_what_the_user_prints(tmp_path):
    lines = [*_LINES.values(), *_OWN]
    body = (
        "import os, sys\n"
        "with quiet.sifted('libraries.log'):\n"
        f"    for line in {lines!r}:\n"
        "        os.write(2, line.encode() + b'\\n')\n"
        "    print('50 %', end='', file=sys.stderr, flush=True)\n"
        "    assert os.system('sleep 0.3; echo of a process >&2') == 0\n"
        f"os.write(2, {_LINES['TensorFlow']!r}.encode() + b'\\n')\n"
    )
    done = _run(tmp_path, body)
    shown = [*_OWN, "50 %of a process", _LINES["TensorFlow"]]
    assert done.stderr.splitlines() == shown
    assert (tmp_path / "libraries.log").read_text().splitlines() == list(_LINES.values())


def test_a_sieve_that_has_sifted_nothing_leaves_no_log(tmp_path):
    body = "import sys\nwith quiet.sifted('libraries.log'):\n    print('mine', file=sys.stderr)\n"
    assert _run(tmp_path, body).stderr == "mine\n"
    assert not (tmp_path / "libraries.log").exists()


def test_the_last_words_of_a_process_that_crashes_get_through_the_sieve(tmp_path):
    body = "import os\nwith quiet.sifted(None):\n    os.write(2, b'why')\n    os.abort()\n"
    assert _run(tmp_path, body).stderr == "why"


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
