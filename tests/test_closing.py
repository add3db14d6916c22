"""What is said when a process ends."""

import subprocess
import sys

_CODE = """
import sys
from tfx_perf import closing
closing.say("first", "  its report")
closing.say("second")
print("a log line", file=sys.stderr)
"""


def test_it_stands_below_everything_else_in_the_order_of_the_calls():
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["a log line", "first", "  its report", "second"]
    assert done.stdout == ""
