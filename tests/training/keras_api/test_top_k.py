"""The largest entries of gradients are summed, and the rest is kept for later steps.

That all entries together are what one device has, `test_replicas` tests, in the plan `all_entries`.
How much is sent, `reduction` decides; the plan's words are those of `top_k_ratio`, and every plan
has it, as all that is `among_replicas`.
"""

import pathlib

import pytest

from tests.training.keras_api.test_replicas import differences, differences_of_workers

pytestmark = pytest.mark.each_choice

_SCRIPT = str(pathlib.Path(__file__).with_name("largest_entries.py"))
_DTYPES = ("float32", "bfloat16", "float16")
_SENT, _SMALL = 21, 610  # entries of the one gradient that is cut, and of all others


def check(found, dtypes):
    assert tuple(found) == dtypes
    for dtype, of_dtype in found.items():
        # What was sent and what is left is the sum of all gradients, whatever was rounded.
        assert of_dtype["steps"]["error"] < 1e-7
        assert 0.005 < of_dtype["steps"]["most"] <= 0.0103
        assert of_dtype["overflow"] == [True, True, True]
        size = 4 if dtype == "float32" else 2
        sent, plan = of_dtype["bytes"]
        rows = 8 * (of_dtype["replicas"] + 1)  # of each replica, and what the loss counts
        assert sent == size * _SMALL + _SENT * (size + 4) + rows  # a place has four bytes
        assert plan.endswith(", the largest 1 % of each gradient sent")


@pytest.mark.parametrize(
    ("package", "replicas", "dtypes"),
    [
        ("keras", "2", ("float32", "bfloat16")),
        pytest.param("tf_keras", "3", _DTYPES, marks=pytest.mark.slow),
    ],
)
def test_what_is_not_sent_is_kept(package, replicas, dtypes):
    check(differences(package, replicas, dtypes, script=_SCRIPT), dtypes)


@pytest.mark.slow
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_workers_keep_what_they_do_not_send(package):
    for found in differences_of_workers(package, _DTYPES, script=_SCRIPT):
        check(found, _DTYPES)
