"""Gradients that are summed in a narrower type: replicas of one process, and real workers.

What the plan says of it is in `reduction_dtype`; `reduction` has the sums made.
"""

import pathlib

import pytest

from tests.training.keras_api.test_replicas import differences, differences_of_workers

pytestmark = pytest.mark.each_choice

_SCRIPT = str(pathlib.Path(__file__).with_name("narrow_sums.py"))
_NARROW = ("bfloat16", "float16")
_CASES = ("sgd", "calls", "fused", "sparse", "clipped", "scaled", "own_train_step", "overflow")
_ROWS_BYTES = 8 * 3  # of both replicas, and what the loss counts, in float64


def check(found, cases):
    assert tuple(found["errors"]) == cases
    for case, errors in found["errors"].items():
        if case == "overflow":
            assert set(errors.values()) == {0.0}, "a step with an infinite gradient was taken"
            continue
        assert max(errors.values()) <= 1, f"{case}: {errors}"
        assert min(errors.values()) > 0.1, f"{case} was not narrowed"
    whole = found["bytes"].pop("None")
    halved = (whole - _ROWS_BYTES) / 2 + _ROWS_BYTES
    assert set(found["bytes"].values()) == {halved}  # where two steps are accumulated, too
    assert found["plans"] == [
        "2 steps per call",
        *(f"2 steps per call, gradients summed in {dtype}" for dtype in _NARROW),
    ]
    assert found["refusal"] is None or "Received: legacy.SGD" in found["refusal"]
    values = {dtype: means for dtype, (means, _) in found["sums"].items()}
    # What two replicas add up may be outside of the type's range, not their mean.
    assert values["float16"] == ["60000.0", "inf", "0.0", "inf", "nan"]
    assert values["bfloat16"] == ["59904.0", "999424.0", "9.968062e-10", "inf", "nan"]
    assert all(types == ["float32", "int32", "float16"] for _, types in found["sums"].values())


@pytest.mark.parametrize(
    ("package", "cases"),
    [
        ("keras", ("fused", "sparse")),
        pytest.param("keras", _CASES, marks=pytest.mark.slow),
        pytest.param("tf_keras", _CASES, marks=pytest.mark.slow),
    ],
)
def test_replicas_sum_as_exactly_as_the_type_and_send_half(package, cases):
    check(differences(package, "2", cases, script=_SCRIPT), cases)


@pytest.mark.slow
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_workers_sum_as_exactly_as_the_type_and_send_half(package):
    for found in differences_of_workers(package, _CASES, script=_SCRIPT):
        check(found, _CASES)
