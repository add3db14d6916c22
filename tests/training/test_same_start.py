"""Workers that would not train the same are told so (`same_start`): real processes."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.training.keras_api.test_replicas import configurations

_SCRIPT = str(pathlib.Path(__file__).with_name("different_workers.py"))
_ROOT = str(pathlib.Path(__file__).parents[2])


@pytest.mark.parametrize(
    ("package", "what", "words"),
    [
        ("keras", "weights", "last/kernel than worker 0"),
        pytest.param("tf_keras", "weights", "weights in last/kernel", marks=pytest.mark.slow),
        pytest.param("tf_keras", "steps", "other steps_per_epoch", marks=pytest.mark.slow),
        pytest.param("keras", "nothing", "trained", marks=pytest.mark.slow),
        pytest.param("keras", "unbuilt", "trained", marks=pytest.mark.slow),
        pytest.param("tf_keras", "unbuilt", "trained", marks=pytest.mark.slow),
    ],
)
def test_the_difference_is_named_on_every_worker(package, what, words):
    workers = [
        subprocess.Popen(
            [sys.executable, _SCRIPT, package, str(index), what],
            env={**os.environ, "PYTHONPATH": _ROOT, "TF_CONFIG": configured},
            stdout=subprocess.PIPE,
            text=True,
        )
        for index, configured in enumerate(configurations(2))
    ]
    try:
        for worker in workers:
            out, _ = worker.communicate(timeout=300)
            assert words in out.splitlines()[-1]
    finally:
        for worker in workers:
            worker.kill()
