"""Servers that are forks of the process that needs children, and when they are not."""

import json
import select
import subprocess
import sys

import pytest

from tests import processes
from tfx_perf import isolate

CASES = """
import logging, os, sys

def tell(what):
    print(f"told {what}")
    logging.warning("warned of %s", what)
    return os.getppid(), type(sys.stdout).__name__

def leave_open(folder):
    import atexit, threading, time
    global rows
    rows = open(folder + "/rows", "w")
    rows.write("a row")
    atexit.register(lambda: open(folder + "/at_exit", "w").write("called"))

    def upload():
        time.sleep(1)
        open(folder + "/thread", "w").write("uploaded")

    threading.Thread(target=upload).start()

def raise_bytes():
    raise ValueError("cannot read " + os.fsdecode(b"caf\\xe9.csv"))

def slow(value, begun, end):
    import time
    open(begun, "w").close()
    while not os.path.exists(end):
        time.sleep(0.05)
    return value

def leave(code):
    sys.exit(code)

def train(value):
    import tensorflow as tf
    data = tf.data.Dataset.range(100).map(lambda x: x + value, num_parallel_calls=2).prefetch(2)
    return int(sum(tf.function(lambda x: 2 * x, jit_compile=True)(x) for x in data))
"""
BEGIN = """
import sys, tempfile, threading, time
import numpy, pyarrow, tensorflow as tf
from tfx_perf import isolate
from tfx_perf.isolate import forks
sys.path.insert(0, {folder!r})
{first}
isolate.import_early(["fork_cases"])
print(type(isolate._SERVER._process).__name__, flush=True)

def called(name, *, log=sys.argv[1], **given):
    seconds = log and 60
    return isolate.run(
        "fork_cases:" + name, given, timeout_seconds=seconds, log_path=log, is_forked=True
    )

{then}
"""


# Imports what takes seconds, and forks for each script: such a fork has done only imports, too. It
# becomes the script's process in all else, to the end of its interpreter.
NURSERY = """
import json, os, sys
import numpy, pyarrow, tensorflow as tf
from tfx_perf import isolate
from tfx_perf.isolate import forks

while order := sys.stdin.buffer.raw.readline():
    order = json.loads(order)
    pid = os.fork()
    if not pid:
        break
    os.write(1, b"%d\\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

if not order:
    sys.exit()
for stream, path in enumerate([os.devnull, *order["output"]]):
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.dup2(file, stream)
    os.close(file)
sys.argv = ["-c", order["log"]]
exec(order["script"])
"""
TIMEOUT_SECONDS = 120


@pytest.fixture(scope="module")
def nursery():
    with subprocess.Popen(
        [sys.executable, "-c", NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "fork_cases.py").write_text(CASES)
    return tmp_path


def script_of(folder, first, then):
    return BEGIN.format(folder=str(folder), first=first, then=then)


@pytest.fixture
def run(nursery, folder):
    """Runs a script in a fork of the process that has imported everything."""

    def run(first="", then=""):
        output = [folder / "stdout", folder / "stderr"]
        order = {
            "script": script_of(folder, first, then),
            "output": list(map(str, output)),
            "log": str(folder / "log"),
        }
        nursery.stdin.write(json.dumps(order).encode() + b"\n")
        nursery.stdin.flush()
        assert select.select([nursery.stdout], [], [], TIMEOUT_SECONDS)[0]
        code = int(nursery.stdout.readline())
        done = subprocess.CompletedProcess(first, code, *(path.read_text() for path in output))
        assert done.returncode == 0, done.stderr
        return done

    return run


def test_a_child_of_its_own_has_only_imported_when_its_function_begins(folder, monkeypatch):
    """Its first import is `forks`, so that TensorFlow's come after the count of threads."""
    code = "import numpy, pyarrow, tensorflow\nfrom tfx_perf.isolate.forks import may_fork\n"
    (folder / "fork_of_own.py").write_text(code)
    monkeypatch.syspath_prepend(folder)
    log = folder / "own.log"
    assert isolate.run("fork_of_own:may_fork", {}, timeout_seconds=TIMEOUT_SECONDS, log_path=log)


def test_a_process_that_has_only_imported_is_forked_and_its_children_can_do_all(folder):
    """In an interpreter of its own: with the threads that imports start."""
    then = """
assert [called("train", value=value) for value in (1, 2)] == [10100, 10300]
assert "fork_cases" not in sys.modules
tf.constant(1)  # of which the server knows nothing
assert called("train", value=3) == 10500
server = isolate._SERVER._process
isolate.release_server()
assert server.poll() is not None
"""
    done = processes.python(
        "-c", script_of(folder, "", then), folder / "log", timeout=TIMEOUT_SECONDS
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["Forked"]


@pytest.mark.parametrize(
    "first",
    [
        "tf.constant(1)",
        "threading.Thread(target=time.sleep, args=[60], daemon=True).start()",
        # Closed before the end, where a channel may wait for its thread without end.
        "import atexit, grpc; channel = grpc.insecure_channel('localhost:1'); "
        "channel.subscribe(id); atexit.register(channel.close)",
    ],
    ids=["TensorFlow", "thread", "gRPC"],
)
def test_one_that_has_done_more_is_not(run, first):
    assert run(first=first).stdout.split() == ["Popen"]


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


@pytest.mark.slow_where("interpreter")
@pytest.mark.parametrize("first", ["", "tf.constant(1)"], ids=["fork", "interpreter"])
def test_a_child_that_stands_for_its_parent_ends_as_an_interpreter_does(run, tmp_path, first):
    run(first=first, then=f'called("leave_open", log=None, folder={str(tmp_path)!r})')
    ends = [(tmp_path / name).read_text() for name in ("rows", "at_exit", "thread")]
    assert ends == ["a row", "called", "uploaded"]


@pytest.mark.slow_where("interpreter")
@pytest.mark.parametrize("first", ["", "tf.constant(1)"], ids=["fork", "interpreter"])
def test_the_way_it_ended_is_reported_whatever_the_message(run, first):
    then = """
from tfx_perf.core import errors
try:
    called("raise_bytes", log=None)
except errors.ChildError as error:
    assert "ValueError: cannot read caf" in str(error), error
try:
    called("leave", log=None, code="giving up")
except errors.ChildError as error:
    assert "exit code 1" in str(error), error
"""
    assert "giving up" in run(first=first, then=then).stderr


@pytest.mark.parametrize(
    "first",
    [
        "import os; [os.close(stream) for stream in (0, 1, 2)]",
        "import os; os.close(1)",  # the next file that is opened gets its number
        "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    ],
    ids=["closed streams", "closed output", "SIGCHLD"],
)
def test_unusual_parents(run, tmp_path, first):
    then = f"""
assert called("train", log=None, value=1) == 10100
isolate.release_server()
open({str(tmp_path / "done")!r}, "w").close()
"""
    run(first=f"print = lambda *words, **others: None\n{first}", then=then)
    assert (tmp_path / "done").exists()


def test_a_line_that_was_not_written_yet_is_written_once(run):
    first = "print = sys.stdout.write; print('begins '); import logging"
    first += "; logging.basicConfig(stream=sys.stdout)"
    then = "called('tell', log=None, what='all'); print('ends ')"
    assert (
        run(
            first=f"{first}\nprint = lambda *words, **others: None",
            then=then.replace("print(", "sys.stdout.write("),
        ).stdout.count("begins")
        == 1
    )


def test_the_server_does_not_end_under_another_threads_child(run, tmp_path):
    begun, end = str(tmp_path / "begun"), str(tmp_path / "end")
    then = f"""
import os, threading
found = []
given = dict(value=1, begun={begun!r}, end={end!r})
other = threading.Thread(target=lambda: found.append(called("slow", **given)))
other.start()
while not os.path.exists({begun!r}):
    time.sleep(0.05)
isolate.release_server()
open({end!r}, "w").close()
other.join()
assert found == [1], found
"""
    run(then=then)


@pytest.mark.parametrize(
    ("left", "within_seconds"),
    [
        ("pool = concurrent.futures.ThreadPoolExecutor(); pool.submit(int).result()", None),
        ("threading.Thread(target=threading.Event().wait).start()", 0.2),
    ],
    ids=["idle pool", "endless thread"],
)
def test_a_process_ends_whatever_threads_are_left(left, within_seconds):
    code = (
        "import concurrent.futures, threading\n"
        "from tfx_perf.isolate import forks\n"
        f"{left}\n"
        f"forks.end(3, within_seconds={within_seconds})"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert done.returncode == 3


@pytest.mark.parametrize(
    ("opened", "is_searched"),
    [("tempfile.TemporaryFile('w')", True), ("open(os.pipe()[1], 'w')", True),
     ("os.pipe2(os.O_NONBLOCK)", False)],
)  # fmt: skip
def test_a_search_for_files_is_made_only_if_one_is_open(opened, is_searched):
    code = f"""
import gc, os, tempfile
from tfx_perf.isolate import forks
searched, own = [], gc.get_objects
gc.get_objects = lambda: searched.append(True) or own()
opened = {opened}
forks.end_as_an_interpreter()
print(bool(searched))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{is_searched}\n"
