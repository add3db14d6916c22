"""Functions in a process of their own: results, errors, crashes, hangs.

A `server` starts the `child`: its own side (`serving`) forks the process, calls the function, and
ends all that it has started (`guard`).
"""

import contextlib
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time
from concurrent import futures

import psutil
import pytest

from tests import processes
from tfx_perf import isolate
from tfx_perf.core import errors

pytestmark = pytest.mark.each_choice

CASES = """
import multiprocessing, os, psutil, signal, subprocess, sys, time
from tfx_perf.core import errors

def add(left, right):
    print("adding")
    return {"sum": left + right, "flag": os.environ.get("FLAG")}

def sleep():
    time.sleep(600)

def stay(pid_file):
    # With a process, one in a session of its own, a fork, and what one has started.
    sleep_code = "import time; time.sleep(600)"
    plain = subprocess.Popen([sys.executable, "-c", sleep_code])
    session = subprocess.Popen([sys.executable, "-c", sleep_code], start_new_session=True)
    forked = multiprocessing.get_context("fork").Process(target=sleep)
    forked.start()
    deep_code = "import subprocess, sys; started = subprocess.Popen([sys.executable, '-c', "
    deep_code += repr(sleep_code) + "]); print(started.pid, flush=True); started.wait()"
    deep = subprocess.Popen([sys.executable, "-c", deep_code], stdout=subprocess.PIPE, text=True)
    deeper = deep.stdout.readline().strip()
    pids = [os.getpid(), plain.pid, session.pid, forked.pid, deep.pid, deeper]
    open(pid_file + ".draft", "w").write(" ".join(map(str, pids)))
    os.rename(pid_file + ".draft", pid_file)
    time.sleep(600)

def leave_behind(pid_file):
    started = [
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], **own)
        for own in ({}, {"start_new_session": True})
    ]
    open(pid_file, "w").write(" ".join(str(each.pid) for each in started))

def save_at_the_end(pid_file):
    from tfx_perf.isolate.termination import Termination
    with Termination() as termination:
        time.sleep(1)  # so that the parent waits for the child, and not any more for its start
        open(pid_file, "w").write(str(os.getpid()))
        while not termination.requested:
            time.sleep(0.05)
        time.sleep(1)
        print("saving", flush=True)

def die(number):
    os.kill(os.getpid(), number)

def leave():
    os._exit(3)

def value_error():
    raise ValueError("not made for it")

def no_memory():
    raise MemoryError("no more")

def lost_worker():
    import tensorflow as tf
    raise tf.errors.UnavailableError(None, None, "the other one has ended")

def user_error():
    raise errors.UserError("Expected a. Received: b.")

def bug():
    raise KeyError("the key")

def oom_score_adj():
    return int(open("/proc/self/oom_score_adj").read())

def numbers():
    import random
    import numpy
    return [random.random(), float(numpy.random.random()), os.getpid(), os.getppid()]

def train(value):
    import tensorflow as tf
    data = tf.data.Dataset.range(100).map(lambda x: x + value, num_parallel_calls=2).prefetch(2)
    double = tf.function(lambda x: 2 * x, jit_compile=True)
    return int(sum(double(x) for x in data)), len(tf.config.list_physical_devices("CPU"))

def shares():
    import numpy, threadpoolctl
    counts = [library["num_threads"] for library in threadpoolctl.threadpool_info()]
    return sorted(os.sched_getaffinity(0)), counts

def keras_line():
    import tensorflow_transform
    import tensorflow as tf
    return tf.keras.Model.__module__
"""

# Every fork needs TensorFlow, and imports it for seconds unless its server has.
SERVED_CASES = f"import tensorflow\n{CASES}"


@pytest.fixture(scope="module", autouse=True)
def no_server_is_left():
    yield
    isolate.release_server()


@pytest.fixture
def project(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "child_cases.py").write_text(CASES)
    (folder / "served_cases.py").write_text(SERVED_CASES)
    monkeypatch.syspath_prepend(folder)


def target(name, *, is_forked):
    return f"{'served_cases' if is_forked else 'child_cases'}:{name}"


@pytest.fixture(params=[False, True], ids=["interpreter", "server"])
def is_forked(request):
    return request.param


@pytest.fixture
def run(is_forked, project, tmp_path):
    def call(name, *, timeout_seconds=300, environment=None, **arguments):
        return isolate.run(
            target(name, is_forked=is_forked),
            arguments,
            timeout_seconds=timeout_seconds,
            log_path=tmp_path / "log",
            environment=environment,
            is_forked=is_forked,
        )

    return call


@pytest.fixture
def started(is_forked, project, tmp_path):
    """The context of a child that runs."""

    def start(name, *, cpus=None, **arguments):
        name = name if ":" in name else target(name, is_forked=is_forked)
        given = {"log_path": tmp_path / "log", "is_forked": is_forked, "cpus": cpus}
        return isolate.started(name, arguments, **given)

    return start


def parent_of(script, *arguments, folder, **given):
    """Starts an interpreter with the project of a test's folder."""
    path = os.pathsep.join([str(folder / "project"), str(folder), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)], text=True,
        env={**os.environ, "PYTHONPATH": path}, **given,
    )  # fmt: skip


def test_result_log_and_environment(run, tmp_path):
    result = run("add", left=1, right=2, environment={"FLAG": "x"})
    assert result == {"sum": 3, "flag": "x"}
    assert "adding" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("name", "may_pass"), [("value_error", False), ("no_memory", True), ("lost_worker", True)]
)
def test_an_error_of_the_code_is_distinguished_from_one_of_the_machine(run, name, may_pass):
    with pytest.raises(errors.ChildError) as caught:
        run(name)
    assert caught.value.may_pass == may_pass


def test_more_files_may_be_open_than_select_can_watch(run):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 2000:
        pytest.skip("this machine allows fewer than 2,000 open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(2000, before[0]), before[1]))
    try:
        with contextlib.ExitStack() as files:
            for _ in range(1100):
                files.enter_context(open(os.devnull))
            assert run("add", left=1, right=2)["sum"] == 3
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.one_case
def test_timeout_kills_all_that_the_child_started(started, tmp_path):
    pid_file = tmp_path / "pid"
    with (  # as `run` does, but not before all that is to be killed has begun
        pytest.raises(errors.MeasurementError, match="did not end within 100 ms") as caught,
        started("stay", pid_file=str(pid_file)) as child,
    ):
        wait_for(pid_file)
        child.result(timeout_seconds=0.1)
    assert str(tmp_path / "log") in str(caught.value)
    wait_for_the_end_of(pid_file.read_text())


def test_a_child_that_was_stopped_with_its_server_ends_with_the_context(started, tmp_path):
    pid_file = tmp_path / "pid"
    with started("stay", pid_file=str(pid_file)):
        wait_for(pid_file)
        pids = pid_file.read_text()
        stopped = psutil.Process(int(pids.split()[0]))
        for each in (stopped.parent(), stopped):
            each.suspend()
    wait_for_the_end_of(pids)


def wait_until(is_so):
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait_for(pid_file):
    wait_until(lambda: pid_file.exists() and pid_file.read_text())


def wait_for_the_end_of(pids):
    wait_until(lambda: not any(map(is_alive, pids.split())))


def is_alive(pid):
    with contextlib.suppress(OSError):
        return "State:\tZ" not in pathlib.Path("/proc", pid, "status").read_text()
    return False


def test_a_child_that_ends_by_itself_leaves_only_detached_processes(run, tmp_path):
    run("leave_behind", pid_file=str(tmp_path / "pid"))
    plain, detached = (tmp_path / "pid").read_text().split()
    try:
        wait_for_the_end_of(plain)
        assert is_alive(detached)
    finally:
        os.kill(int(detached), signal.SIGKILL)


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("killed", ["parent", "child"])
def test_nothing_that_the_child_has_started_survives(tmp_path, is_forked, killed):
    pid_file = tmp_path / "pid"
    script = (
        "from tfx_perf import isolate; import sys;"
        "isolate.run('child_cases:stay', {'pid_file': sys.argv[1]}, timeout_seconds=600,"
        f" log_path=sys.argv[2], is_forked={is_forked})"
    )
    parent = parent_of(script, pid_file, tmp_path / "log", folder=tmp_path)
    wait_for(pid_file)
    pids = pid_file.read_text()
    if killed == "parent":
        parent.kill()
    else:
        os.kill(int(pids.split()[0]), signal.SIGKILL)
    assert parent.wait(60) == (-signal.SIGKILL if killed == "parent" else 1)
    wait_for_the_end_of(pids)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("die", {"number": signal.SIGKILL}, "memory ran out"),
        ("die", {"number": signal.SIGSEGV}, r"crashed \(SIGSEGV\)"),
        ("die", {"number": signal.SIGTERM}, r"was ended \(SIGTERM\)"),
        ("leave", {}, "exit code 3"),
    ],
)
def test_the_end_of_a_process_without_a_result_is_reported(run, name, arguments, message):
    with pytest.raises(errors.MeasurementError, match=message):
        run(name, **arguments)


def test_user_error_comes_back_as_one(run):
    with pytest.raises(errors.UserError, match=r"^Expected a\. Received: b\.$"):
        run("user_error")


def test_other_errors_are_named_and_logged(run, tmp_path):
    with pytest.raises(errors.MeasurementError, match="KeyError: 'the key'") as caught:
        run("bug")
    assert "\n" not in str(caught.value)
    assert "Traceback" in (tmp_path / "log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("legacy", ["0", "1"])
def test_child_has_the_parents_keras_line(tmp_path, legacy, is_forked):
    """Even if tensorflow_transform is imported there first, and set the variable here later."""
    # State that another component's child has left in the server.
    imports = "import tfx_perf.components.input_tuner.child" if is_forked else ""
    (tmp_path / "child_cases.py").write_text(imports + CASES)
    script = f"""
import os, tensorflow as tf
line = tf.keras.Model.__module__
os.environ["TF_USE_LEGACY_KERAS"] = "1"  # as tensorflow_transform does
from tfx_perf import isolate
found = isolate.run(
    "child_cases:keras_line", {{}}, timeout_seconds=300, log_path={str(tmp_path / "log")!r},
    is_forked={is_forked})
assert found == line, (found, line)
"""
    environment = {"TF_USE_LEGACY_KERAS": legacy, "PYTHONPATH": str(tmp_path)}
    done = processes.python("-c", script, environment=environment)
    assert done.returncode == 0, done.stderr


def test_files_that_are_named_like_pythons_modules_are_not_imported(tmp_path, is_forked):
    for name in ("enum", "json", "types"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not the library')")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "child_cases.py").write_text(CASES)
    script = tmp_path / "scripts" / "script.py"
    script.write_text(f"""
import sys, threading
from tfx_perf import isolate
threading.Thread(target=threading.Event().wait, daemon=True).start()  # the server is no fork
sys.path.append({str(tmp_path)!r})
print(isolate.run("child_cases:add", {{"left": 1, "right": 2}}, timeout_seconds=300,
    log_path="log", is_forked={is_forked})["sum"])
""")
    done = processes.python(script, cwd=tmp_path)
    assert done.stdout == "3\n", done.stderr


of_server = pytest.mark.parametrize("is_forked", [True], ids=["server"])


@of_server
def test_children_of_a_server_are_processes_of_their_own(run):
    first, second = run("numbers"), run("numbers")
    assert first[0] != second[0]
    assert first[1] != second[1]
    assert first[2] != second[2]
    assert first[3] == second[3] != os.getpid()  # the server is their parent
    # It has imported TensorFlow, which runs in all of them all the same.
    for value in (1, 2):
        assert run("train", value=value) == [2 * (4950 + 100 * value), 1]
    isolate.release_server()
    assert run("numbers")[3] != first[3]


@of_server
def test_a_server_that_died_is_replaced(run):
    server = run("numbers")[3]
    assert server != os.getpid()
    os.kill(server, signal.SIGKILL)
    assert run("add", left=1, right=2)["sum"] == 3  # at once, by an interpreter if need be
    assert run("numbers")[3] not in (server, os.getpid())


@of_server
def test_another_environment_is_another_server(run, monkeypatch):
    server = run("numbers")[3]
    assert run("numbers", environment={"FLAG": "x"})[3] == server
    monkeypatch.setenv("FLAG", "y")
    assert run("numbers")[3] != server
    assert run("add", left=1, right=2)["flag"] == "y"


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_child_that_stands_for_its_parent(tmp_path, is_forked, number):
    """Its output is its parent's, and so are SIGTERM and Ctrl-C."""
    pid_file = tmp_path / "pid"
    script = (
        "from tfx_perf import isolate; import sys;"
        f"call = lambda name, **arguments: isolate.run('{target('', is_forked=is_forked)}' + name,"
        f" arguments, timeout_seconds=None, log_path=None, is_forked={is_forked});"
        "call('add', left=1, right=2); call('save_at_the_end', pid_file=sys.argv[1])"
    )
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    parent = parent_of(script, pid_file, folder=tmp_path, **pipes)
    wait_for(pid_file)
    parent.send_signal(number)
    output, _ = parent.communicate(timeout=60)
    assert output.splitlines() == ["adding", "saving"]
    assert parent.returncode == -number
    wait_for_the_end_of(pid_file.read_text())


@of_server
def test_children_of_a_server_run_at_the_same_time(tmp_path, run, started):
    run("add", left=1, right=2)
    first, second = tmp_path / "first", tmp_path / "second"
    with (
        started("save_at_the_end", pid_file=str(first)) as one,
        started("save_at_the_end", pid_file=str(second)),
    ):
        wait_until(lambda: first.exists() and second.exists())
        assert one.poll() is None
        assert run("numbers")[3] != os.getpid()  # the server has time for another
        with pytest.raises(errors.TimedOutError):
            one.result(timeout_seconds=0.1)
    wait_for_the_end_of(f"{first.read_text()} {second.read_text()}")
    assert one.poll() is not None


@of_server
def test_a_server_with_children_is_not_replaced(tmp_path, run, started, monkeypatch):
    server = run("numbers")[3]
    with started("save_at_the_end", pid_file=str(tmp_path / "pid")) as other:
        monkeypatch.setenv("FLAG", "y")
        assert run("add", left=1, right=2)["flag"] == "y"
        assert other.poll() is None
    monkeypatch.delenv("FLAG")
    assert run("numbers")[3] == server


def test_only_a_child_that_stands_for_its_parent_is_as_dear_to_the_kernel(run):
    own = int(pathlib.Path("/proc/self/oom_score_adj").read_text())
    assert run("oom_score_adj") == 1000
    found = isolate.run("child_cases:oom_score_adj", {}, timeout_seconds=300, log_path=None)
    assert found == own


def test_a_bound_child_has_its_cpus_and_as_many_threads(started, is_forked, tmp_path):
    """Also where NumPy, which counts them, has been imported before."""
    cases = SERVED_CASES if is_forked else CASES
    (tmp_path / "project/counted_cases.py").write_text(f"import numpy\n{cases}")
    cpus = frozenset({max(os.sched_getaffinity(0))})
    with started("counted_cases:shares", cpus=cpus) as child:
        found, counts = child.result(timeout_seconds=300)
    assert found == sorted(cpus)
    assert set(counts) == {1}


def test_exit_codes_show_the_failing_side_and_logs_are_appended_to(started, tmp_path):
    cases = [("add", {"left": 1, "right": 2}, 0), ("bug", {}, 1), ("leave", {}, 3)]
    for name, arguments, code in cases:
        with started(name, **arguments) as child:
            assert child.wait(300) == child.poll() == code
    text = (tmp_path / "log").read_text()
    assert 0 <= text.find("adding") < text.find("KeyError: 'the key'")


@of_server
def test_several_threads_may_wait_for_one_child(started):
    for _ in range(10):
        with started("leave") as child, futures.ThreadPoolExecutor() as pool:
            waiting = [pool.submit(child.wait, 300) for _ in range(4)]
            assert {child.wait(300), *(each.result() for each in waiting)} == {3}


def test_imports_that_began_early_are_there_for_the_child(tmp_path):
    """In a process that has no server yet."""
    (tmp_path / "early.py").write_text(
        "import os\nBY = os.getpid()\n\ndef who():\n    return BY, os.getpid()\n"
    )
    script = (
        "import sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from tfx_perf import isolate\n"
        "isolate.import_early(['no_such_module', 'early'])\n"
        "server = isolate._SERVER._process.pid\n"
        "arguments = dict(timeout_seconds=60, log_path=sys.argv[1], is_forked=True)\n"
        "by, own = isolate.run('early:who', {}, **arguments)\n"
        "assert by == server != own, (by, server, own)\n"
        "isolate.release_server()\n"
        "isolate.import_early(['early'])\n"
        "print(isolate._SERVER._process.pid != server)\n"
    )
    done = processes.python("-c", script, tmp_path / "log", timeout=120)
    assert done.stdout.strip() == "True", done.stderr


_EARLY = """
import sys
from tfx_perf import isolate
isolate.import_early(sys.argv[1:])
print(isolate._SERVER._process.pid, flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("ends", ["by itself", "killed"])
@pytest.mark.parametrize("imports", [False, True], ids=["waits", "imports"])
def test_nothing_is_left_of_a_server_without_children_with_its_caller(tmp_path, imports, ends):
    """Neither before it begins to import nor meanwhile."""
    (tmp_path / "imported_early.py").write_text(
        f"import time; open({str(tmp_path / 'begun')!r}, 'w').close(); time.sleep(600)"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    names = ["imported_early"] if imports else []
    caller = parent_of(_EARLY, *names, folder=tmp_path, **pipes)
    server = caller.stdout.readline().strip()
    if imports:
        wait_until((tmp_path / "begun").exists)
    assert is_alive(server)
    if ends == "killed":
        caller.kill()
    caller.communicate("", timeout=60)
    wait_for_the_end_of(server)
    assert imports == (tmp_path / "begun").exists()


def test_where_nothing_is_to_be_imported_and_a_fork_is_not_safe_there_is_no_server():
    script = (
        "import threading; from tfx_perf import isolate\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        "isolate.import_early()\n"
        "assert isolate._SERVER._process is None"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_a_process_that_only_starts_children_loads_no_tensorflow():
    """Nor do they see what it logs when it is loaded."""
    script = (
        "import sys; from tfx_perf import isolate; "
        "assert 'tensorflow' not in sys.modules and 'numpy' not in sys.modules"
    )
    done = processes.python("-c", script)
    assert (done.returncode, done.stderr) == (0, "")
