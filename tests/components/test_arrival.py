"""A worker that does not come up is named (`arrival`): real processes, which wait."""

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.ports import free_port

SCRIPT = """
import pathlib, sys
from tfx_perf import workers
from tfx_perf.components.optimized_trainer.workers import arrival
from tfx_perf.tf_internals import worker_server

report = pathlib.Path(sys.argv[1]).write_text
with arrival.awaited(workers.these_hosts(), seconds=float(sys.argv[2]), report=report):
    worker_server.start()
print("all are up")
"""


def start(index, hosts, *, report, seconds):
    task = {"cluster": {"worker": hosts}, "task": {"type": "worker", "index": index}}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(report), str(seconds)],
        env={**os.environ, "TF_CONFIG": json.dumps(task)},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("index", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_one_that_is_missing_is_named(index, tmp_path):
    hosts = [f"localhost:{free_port()}" for _ in range(2)]
    worker = start(index, hosts, report=tmp_path / "report", seconds=1)
    try:
        worker.communicate(timeout=120)
    finally:
        worker.kill()
    assert worker.returncode == -signal.SIGKILL
    missing = 1 - index
    text = (tmp_path / "report").read_text()
    assert f"no answer from worker {missing} at {hosts[missing]}." in text


@pytest.mark.slow
def test_where_all_come_up_nothing_is_said(tmp_path):
    hosts = [f"localhost:{free_port()}" for _ in range(2)]
    both = [start(index, hosts, report=tmp_path / "report", seconds=100) for index in (0, 1)]
    try:
        for worker in both:
            out, _ = worker.communicate(timeout=120)
            assert "all are up" in out
    finally:
        for worker in both:
            worker.kill()
    assert not (tmp_path / "report").exists()
