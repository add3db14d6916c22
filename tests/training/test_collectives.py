"""Real replicas and workers: reductions, draws and settings.

Workers that would not train the same are refused (`checks`), as are those that get no batch.
"""

import json
import pathlib
import sys

import pytest

from tests import processes
from tests.training import script_forks, two_workers

_FOLDER = pathlib.Path(__file__).parent
_WHAT = ("products", "dropped", "failed", "sliceable", "flops", "idle")
# Forward pass and weight gradients: 64 rows; for the inputs of the second layer.
_FLOPS = 2 * 64 * (2 * 16 * 8 + 3 * 8 * 1)


@pytest.mark.slow
@pytest.mark.parametrize("package", ["keras", pytest.param("tf_keras", marks=pytest.mark.slow)])
def test_replicas_sum_while_they_compute_and_each_drops_its_own_units(package):
    script = _FOLDER.joinpath("two_replicas.py")
    done = script_forks.run(script, package, *_WHAT)
    found = json.loads(processes.last_line(done))
    smallest, largest = found["products"]
    assert smallest == 3, "the last layer's gradients need the forward pass of three layers alone"
    assert largest > smallest
    assert 400 < found["dropped"] < 600  # half of a thousand, by chance
    # So memory may run out on one replica while others wait in a sum; see `Summing`.
    assert found["failed"] == ["InvalidArgumentError", 2.0]
    reason = "a layer asks the other replicas, which may have fewer slices"
    assert found["sliceable"] == [None, None, None, reason]
    assert found["flops"] == [_FLOPS, None]
    assert found["idle"] == []


@pytest.mark.slow
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_plans_are_tried_over_replicas(package):
    done = script_forks.run(_FOLDER.joinpath("two_replicas.py"), package, "trials")
    note, *statuses = json.loads(processes.last_line(done))["trials"]
    assert "2 replicas" in note
    assert {"chosen", "slower"} & {*statuses}


@pytest.mark.slow
def test_a_stuck_worker_is_not_waited_for(tmp_path):
    script = [str(_FOLDER.joinpath("launched_worker.py")), "keras", "20"]
    command = [sys.executable, "-m", "tfx_perf", "launch", "--workers", "2", *script]
    done = processes.run(*command, cwd=tmp_path, timeout=300)
    assert "1: does not go on" in done.stdout
    assert done.returncode == 1, "worker 1 would have slept for longer than this test takes"
    assert done.stderr.splitlines()[-1].startswith("Worker 0: ")


@pytest.mark.slow
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_workers_sum_gradients_and_rows_in_a_step_and_metrics_once_a_call(package):
    of_metrics = 4  # total and count, of the loss and of the metric
    for line in two_workers.last_lines(_FOLDER.joinpath("counting_reductions.py"), package):
        assert json.loads(line) == {
            "full": {"step": 1, "call": of_metrics},
            "any": {"step": 2, "call": of_metrics},
            "flops": [_FLOPS, None],
        }


_SCRIPT = pathlib.Path(__file__).with_name("different_workers.py")
_TRAINED = "10 steps per execution; 10 steps per execution"
_AGREED = "Keras fit; 10 steps per execution"  # as the first worker's callback requires


@pytest.mark.parametrize(
    ("package", "what", "words"),
    [
        ("keras", "weights", "last/kernel than worker 0"),
        pytest.param("tf_keras", "weights", "weights in last/kernel", marks=pytest.mark.slow),
        pytest.param("tf_keras", "steps", "other steps_per_epoch", marks=pytest.mark.slow),
        pytest.param("keras", "files", "AutoShardPolicy.DATA", marks=pytest.mark.slow),
        pytest.param("tf_keras", "files", "AutoShardPolicy.DATA", marks=pytest.mark.slow),
        pytest.param("keras", "nothing", _TRAINED, marks=pytest.mark.slow),
        pytest.param("keras", "unbuilt", _TRAINED, marks=pytest.mark.slow),
        pytest.param("tf_keras", "unbuilt", _TRAINED, marks=pytest.mark.slow),
        pytest.param("keras", "callback", _AGREED, marks=pytest.mark.slow),
        pytest.param("tf_keras", "callback", _AGREED, marks=pytest.mark.slow),
    ],
)
def test_a_mismatch_is_named_on_every_worker(package, what, words):
    assert all(words in line for line in two_workers.last_lines(_SCRIPT, package, what))
