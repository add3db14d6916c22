"""Workers that would not train the same are told so (`checks`), and who gets no batch.

All are real processes.
"""

import pathlib

import pytest

from tests.training import two_workers

pytestmark = pytest.mark.each_choice

_SCRIPT = pathlib.Path(__file__).with_name("different_workers.py")
_TRAINED = "10 steps per call; 10 steps per call"
_AGREED = "plain fit; 10 steps per call"  # as the first one needs it


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
def test_what_is_amiss_is_named_on_every_worker(package, what, words):
    assert all(words in line for line in two_workers.last_lines(_SCRIPT, package, what))
