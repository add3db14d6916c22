"""Several replicas train as one device does (`replicas`), plain and with plans."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.ports import free_port

pytestmark = pytest.mark.each_choice

_SCRIPT = str(pathlib.Path(__file__).with_name("replica_cases.py"))
_ROOT = str(pathlib.Path(__file__).parents[3])
_CASES = {
    "sgd", "clipnorm", "global_clipnorm", "clipvalue", "weight_decay", "moving_average", "overflow",
    "regularized", "weighted", "short_batch", "sparse", "two_outputs",
}  # fmt: skip
_FUSED = _CASES - {"sgd", "clipvalue", "overflow", "regularized", "weighted", "short_batch"}


def started(package, replicas, plans, **environment):
    return subprocess.Popen(
        [sys.executable, _SCRIPT, package, replicas, *plans],
        env={**os.environ, "PYTHONPATH": _ROOT, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def differences(process, *, timeout=500):
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err[-4000:]
    return json.loads(out.splitlines()[-1])


def check(found, plans):
    assert set(found) == _CASES
    for case, by_plan in found.items():
        expected = {plan for plan in plans if plan != "fused" or case in _FUSED}
        assert set(by_plan) == expected, case
        assert max(by_plan.values(), default=0) < 1e-5, f"{case}: {by_plan}"


@pytest.mark.parametrize(
    ("package", "replicas", "plans"),
    [
        ("keras", "2", ("fused",)),
        pytest.param("keras", "4", ("plain", "calls", "fused", "xla"), marks=pytest.mark.slow),
        pytest.param("tf_keras", "2", ("plain", "fused", "xla"), marks=pytest.mark.slow),
        pytest.param("tf_keras", "4", ("plain", "calls"), marks=pytest.mark.slow),
    ],
)
def test_replicas_of_one_process_train_as_one_device(package, replicas, plans):
    check(differences(started(package, replicas, plans)), plans)


@pytest.mark.slow
@pytest.mark.parametrize("worker_count", [2, 3])
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_workers_train_as_one_device(package, worker_count):
    plans = ("plain", "calls", "fused")
    addresses = [f"localhost:{free_port()}" for _ in range(worker_count)]
    workers = []
    for index in range(worker_count):
        task = {"type": "worker", "index": index}
        configured = json.dumps({"cluster": {"worker": addresses}, "task": task})
        workers.append(started(package, "workers", plans, TF_CONFIG=configured))
    try:
        for worker in workers:
            check(differences(worker), plans)
    finally:
        for worker in workers:
            worker.kill()
