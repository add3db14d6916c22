"""Servers that are forks of the process that needs children, and when they are not."""

import subprocess
import sys

import pytest

CASES = """
import logging, os, sys

def tell(what):
    print(f"told {what}")
    logging.warning("warned of %s", what)
    return os.getppid(), type(sys.stdout).__name__

def train(value):
    import tensorflow as tf
    data = tf.data.Dataset.range(100).map(lambda x: x + value, num_parallel_calls=2).prefetch(2)
    return int(sum(tf.function(lambda x: 2 * x, jit_compile=True)(x) for x in data))
"""
BEGIN = """
import sys, tempfile, threading, time
import numpy, pyarrow, tensorflow as tf, tfx.v1
from tfx_perf.components.processes import child, forking
sys.path.insert(0, {folder!r})
{first}
child.import_early(["fork_cases"])
print(type(child._SERVER._process).__name__, flush=True)

def called(name, *, log=sys.argv[1], **given):
    seconds = log and 60
    return child.run_in_child(
        "fork_cases:" + name, given, timeout_seconds=seconds, log_path=log, from_server=True
    )

{then}
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "fork_cases.py").write_text(CASES)

    def run(first="", then=""):
        script = BEGIN.format(folder=str(tmp_path), first=first, then=then)
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "log")],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done

    return run


def test_a_process_that_has_only_imported_is_forked_and_its_children_can_do_all(run, tmp_path):
    then = """
assert [called("train", value=value) for value in (1, 2)] == [10100, 10300]
assert "fork_cases" not in sys.modules
tf.constant(1)  # of which the server knows nothing
assert called("train", value=3) == 10500
server = child._SERVER._process
child.release_server()
assert server.poll() is not None
"""
    assert run(then=then).stdout.split() == ["Forked"]


@pytest.mark.parametrize(
    "first",
    [
        "tf.constant(1)",
        "threading.Thread(target=time.sleep, args=[60], daemon=True).start()",
        "import grpc; channel = grpc.insecure_channel('localhost:1'); channel.subscribe(id)",
    ],
    ids=["TensorFlow", "thread", "gRPC"],
)
def test_one_that_has_done_more_is_not(run, first):
    done = run(first=first, then="assert called('train', value=1) == 10100")
    assert done.stdout.split() == ["Popen"]


def test_a_childs_output_is_its_own_whatever_the_parent_had(run, tmp_path):
    first = """
import io, logging
logging.basicConfig(filename=tempfile.mktemp())
logging.root.setLevel(logging.ERROR)
parents, sys.stdout = sys.stdout, io.StringIO()
print = lambda *words, **others: parents.write(" ".join(words) + "\\n")
"""
    then = """
called("tell", what="the log")
parents.flush()
called("tell", log=None, what="all")
assert not sys.stdout.getvalue()
"""
    done = run(first=first, then=then)
    assert done.stdout.splitlines() == ["Forked", "told all"]
    log = (tmp_path / "log").read_text()
    assert "told the log" in log
    assert "warned of the log" in log
    assert "warned of all" not in done.stderr  # it logs as its parent does
