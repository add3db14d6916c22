"""Processes that train together: who may be lost, who is started again, how all end."""

import contextlib
import functools
import os
import signal
import time

import pytest

from tfx_perf import isolate
from tfx_perf.distribute import supervise


class Process:
    """One that has ended as its code says, or runs if that is None."""

    def __init__(self, code):
        self.code = code

    def poll(self):
        return self.code

    def wait(self, timeout):
        """Has nothing to wait for."""

    terminate = end = lambda self: None


def first_failure(processes, *, lost=(), is_over=lambda: False, say):
    tasks = [
        supervise.Task(f"worker {index}", str(index), {}, may_be_lost=index in lost)
        for index in range(len(processes))
    ]
    begun = iter(processes)
    start = lambda task: contextlib.nullcontext(next(begun))  # noqa: E731
    with supervise.Group(tasks, start=start, say=say) as group:
        return group.first_failure(heartbeat_timeout_seconds=2, is_over=is_over)


def test_a_worker_that_leaves_the_others_is_reported(monkeypatch):
    monkeypatch.setattr(supervise, "_TOGETHER_SECONDS", -1.0)
    processes, said = [Process(None), Process(0), Process(0)], []

    def say(text):
        said.append(text)
        processes[0].code = 3

    assert first_failure(processes, say=say) == "worker 0"
    (text,) = said
    assert text.startswith("Worker 1, 2 has ended, and others still run.")


@pytest.mark.parametrize(
    ("lost", "failed", "words"),
    [
        ((1, 2), None, ["because memory ran out. The others continue without it."]),
        ((1,), "worker 1", []),
    ],
)
def test_others_continue_without_a_lost_worker_only_if_there_are_others(lost, failed, words):
    processes, said = [Process(None), Process(-signal.SIGKILL), Process(None)], []
    looks = iter([False, True])
    is_over = functools.partial(next, looks)
    found = first_failure(processes, lost=lost, is_over=is_over, say=said.append)
    assert found == failed
    assert len(said) == len(words) and all(map(str.endswith, said, words))


def test_nothing_begins_again_once_the_training_is_to_end(tmp_path, monkeypatch):
    begun, told = [], []

    def start(task):
        begun.append(task.name)
        return contextlib.nullcontext(Process(-signal.SIGKILL))

    def end(group, *others):  # called during the cleanup after a failure
        told.append(True)
        return exit_group(group, *others)

    exit_group = supervise.Group.__exit__
    monkeypatch.setattr(supervise.Group, "__exit__", end)
    supervise.train(
        lambda: supervise.tasks(worker_count=2, server_count=0, folder=tmp_path),
        start=start,
        folder=tmp_path,
        log_folder=tmp_path,
        restarts=3,
        heartbeat_timeout_seconds=2,
        is_over=lambda: bool(told),
        say=lambda text: None,
    )
    assert begun == ["worker 0", "worker 1"]


_CASES = """
import os, pathlib, signal, time
from tfx_perf.distribute.parameter_server import heartbeat

def serve(folder):
    with heartbeat.given(), pathlib.Path(folder, "began").open("a") as begun:
        print(os.getpid(), file=begun, flush=True)
        time.sleep(60)

def coordinate(folder):
    while not pathlib.Path(folder, "again").exists():
        time.sleep(0.05)

def sleep(folder):
    print(os.getpid(), flush=True)
    time.sleep(60)

def ignore(folder):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("up", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Returns what returns what starts a function for each kind of task."""
    (tmp_path / "launched_cases.py").write_text(_CASES)
    monkeypatch.syspath_prepend(tmp_path)

    def of(*names, show=None):
        return lambda task: isolate.started(
            f"launched_cases:{names[task.heartbeats is not None]}",
            {"folder": str(tmp_path)},
            environment=task.environment,
            log_path=tmp_path / "log",
            show=show,
        )

    return of


def test_a_stopped_worker_of_a_coordinator_is_killed_and_started_again(tmp_path, start):
    tasks = supervise.tasks(worker_count=1, server_count=1, folder=tmp_path)[:2]
    said, begun = [], tmp_path / "began"

    def look():
        ids = begun.read_text().split() if begun.exists() else []
        if len(ids) == 1 and not (tmp_path / "stopped").exists():
            (tmp_path / "stopped").touch()
            os.kill(int(ids[0]), signal.SIGSTOP)
        if len(ids) == 2:
            (tmp_path / "again").touch()
        return False

    both = start("coordinate", "serve")
    with supervise.Group(tasks, start=both, restarts=1, say=said.append) as group:
        assert group.first_failure(heartbeat_timeout_seconds=2, is_over=look) is None
    assert said == [
        "Worker 0 was killed after 2 s without a heartbeat: it was stopped or "
        "hung, and is started again."
    ]


def alone(folder):
    return supervise.tasks(worker_count=1, server_count=0, folder=folder)


def test_a_stopped_process_ends_on_the_signal_to_end(start, tmp_path):
    said, shown = [], []
    tasks, one = alone(tmp_path), start("sleep", show=shown.append)
    with supervise.Group(tasks, start=one, say=said.append) as group:
        while not shown:
            time.sleep(0.05)
        os.kill(int(shown[0]), signal.SIGSTOP)
    assert group.codes == {"worker 0": -signal.SIGTERM}
    assert said == []  # it would have been killed after half a minute


def test_a_worker_that_has_to_be_killed_is_reported(start, monkeypatch, tmp_path):
    monkeypatch.setattr(supervise, "_PATIENCE_SECONDS", 0.5)
    said, shown = [], []
    tasks, one = alone(tmp_path), start("ignore", show=shown.append)
    with supervise.Group(tasks, start=one, say=said.append) as group:
        while not shown:
            time.sleep(0.05)
    assert said == ["Worker 0 did not end within 0 s, and was killed."]
    assert shown == ["up\n"]
    assert group.codes == {"worker 0": -signal.SIGKILL}
