"""A process ends itself where something takes too long (`time_limit`)."""

import signal

import pytest

from tests import processes

SCRIPT = """
import signal, sys, time
from tfx_perf.core import time_limit

own = []
signal.signal(signal.SIGALRM, lambda *_: own.append(time.monotonic()))
began = time.monotonic()
signal.setitimer(signal.ITIMER_REAL, 1.5)
with time_limit.ended_after(float(sys.argv[1]), log_path=sys.argv[2]):
    time.sleep(float(sys.argv[3]))
while not own:
    time.sleep(0.01)
print(own[0] - began)
"""


# A call that keeps the interpreter's lock, so that no Python code can run.
_IN_A_THREAD = """
import ctypes, sys, threading
from tfx_perf.core import time_limit

def hang():
    with time_limit.ended_after(float(sys.argv[1]), log_path=sys.argv[2]):
        ctypes.PyDLL(None).sleep(int(sys.argv[3]))

threading.Thread(target=hang).start()
"""


def run(*arguments, script=SCRIPT):
    return processes.python("-c", script, *map(str, arguments), timeout=60)


def test_its_stacks_are_in_the_log(tmp_path):
    log = tmp_path / "log.txt"
    ended = run(0.2, log, 50)
    assert ended.returncode == -signal.SIGALRM
    assert "most recent call first" in log.read_text()


def test_a_timer_of_faulthandler_keeps_running(tmp_path):
    script = SCRIPT.replace("\nbegan =", "\nfaulthandler.dump_traceback_later(1.0)\nbegan =")
    ended = run(50, tmp_path / "log.txt", 0.2, script="import faulthandler\n" + script)
    assert ended.returncode == 0
    assert "Timeout (0:00:01)!" in ended.stderr


def test_a_hang_outside_of_python_is_ended_from_any_thread(tmp_path):
    log = tmp_path / "log.txt"
    ended = run(0.2, log, 50, script=_IN_A_THREAD)
    assert ended.returncode == -signal.SIGALRM
    assert "most recent call first" in log.read_text()


def test_a_timer_of_the_user_keeps_running(tmp_path):
    ended = run(50, tmp_path / "log.txt", 0.2)
    assert ended.returncode == 0, ended.stderr
    assert float(ended.stdout) == pytest.approx(1.5, abs=1.0)
