"""A worker that does not come up is named (`arrival`): real processes, which wait."""

import contextlib
import json
import signal

import pytest

from tests.ports import free_port
from tests.training import script_forks

SCRIPT = """
import pathlib, sys
from tfx_perf.core import workers
from tfx_perf.distribute import worker_server

report = pathlib.Path(sys.argv[1]).write_text
with worker_server.awaited(workers.these_hosts(), seconds=float(sys.argv[2]), report=report):
    worker_server.start()
print("all are up")
"""


@pytest.fixture
def started(tmp_path):
    """Returns the context of a worker that runs, which reports to `tmp_path / "report"`."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    def of(index, hosts, *, seconds):
        task = {"cluster": {"worker": hosts}, "task": {"type": "worker", "index": index}}
        environment = {"TF_CONFIG": json.dumps(task)}
        arguments = str(tmp_path / "report"), str(seconds)
        return script_forks.started(script, *arguments, environment=environment)

    return of


@pytest.mark.parametrize("index", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_one_that_is_missing_is_named(index, started, tmp_path):
    hosts = [f"localhost:{free_port()}" for _ in range(2)]
    with started(index, hosts, seconds=1) as worker:
        assert worker.done(timeout=120).returncode == -signal.SIGKILL
    missing = 1 - index
    text = (tmp_path / "report").read_text()
    assert f"no answer from worker {missing} at {hosts[missing]}." in text


@pytest.mark.slow
def test_if_all_arrive_nothing_is_reported(started, tmp_path):
    hosts = [f"localhost:{free_port()}" for _ in range(2)]
    with contextlib.ExitStack() as running:
        both = [running.enter_context(started(index, hosts, seconds=100)) for index in (0, 1)]
        for worker in both:
            assert "all are up" in worker.done(timeout=120).stdout
    assert not (tmp_path / "report").exists()
