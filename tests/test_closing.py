"""What is said when a process ends, and what it does not wait for."""

import subprocess
import sys

_CODE = """
import sys
from tfx_perf import closing
closing.say("first", "  its report")
closing.say("second")
print("a log line", file=sys.stderr)
"""
_GARBAGE = """
from tfx_perf import closing

class Cycle:
    def __init__(self):
        self.itself = self

    def __del__(self):
        print("collected")

Cycle()
"""


def test_a_process_in_a_hurry_looks_for_no_garbage_at_its_end():
    def said(code):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        return done.stdout.decode().split()

    assert said(_GARBAGE) == ["collected"]
    assert said(f"{_GARBAGE}\nclosing.hurry()") == []


def test_it_stands_below_everything_else_in_the_order_of_the_calls():
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["a log line", "first", "  its report", "second"]
    assert done.stdout == ""
