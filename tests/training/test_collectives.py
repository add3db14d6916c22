"""Reductions: what they wait for in the graph, and how many workers make."""

import json
import pathlib
import sys

import pytest

from tests import processes
from tests.training import script_forks, two_workers

_FOLDER = pathlib.Path(__file__).parent


@pytest.mark.parametrize("package", ["keras", pytest.param("tf_keras", marks=pytest.mark.slow)])
def test_replicas_begin_a_sum_while_they_compute_other_gradients(package):
    done = script_forks.run(_FOLDER.joinpath("overlapping_sums.py"), package)
    smallest, largest = json.loads(processes.last_line(done))
    assert smallest == 3, "the last layer's gradients need the forward pass of three layers alone"
    assert largest > smallest


@pytest.mark.slow
def test_a_replica_that_fails_before_a_sum_leaves_reductions_as_they_were():
    """So memory may run out on one replica while others wait in a sum; see `Summing`."""
    done = script_forks.run(_FOLDER.joinpath("failing_replica.py"))
    assert done.stdout.splitlines()[-2:] == ["InvalidArgumentError", "2.0"], done.stderr[-3000:]


@pytest.mark.slow
def test_a_worker_that_does_not_go_on_is_not_waited_for(tmp_path):
    script = str(_FOLDER.joinpath("not_going_on.py"))
    command = [sys.executable, "-m", "tfx_perf", "launch", "--workers", "2", script, "20"]
    done = processes.run(*command, cwd=tmp_path, timeout=300)
    assert "1: does not go on" in done.stdout
    assert done.returncode == 1, "worker 1 would have slept for longer than this test takes"
    assert done.stderr.splitlines()[-1].startswith("Worker 0: ")


@pytest.mark.slow
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_workers_sum_gradients_and_rows_in_a_step_and_metrics_once_a_call(package):
    of_metrics = 4  # total and count of the loss, and of the metric
    for line in two_workers.last_lines(_FOLDER.joinpath("counting_reductions.py"), package):
        assert json.loads(line) == {
            "full": {"step": 1, "call": of_metrics},
            "any": {"step": 2, "call": of_metrics},
        }
