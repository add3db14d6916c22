"""Several replicas train as one device does (`tfx_perf.distribute.as_one_device`), also with plans.

So do `replicas` and `as_one_device`. Each replica counts what its
`replica_part` of a batch does, and may draw by the row (`per_row_rng`). What they sum in a call of
several steps keeps its shape (`constant_shapes`). They evaluate as one device does, too
(`evaluation`, `keras3_api.evaluating`), with the averages of all (`distribute.together`), and sum
gradients in a narrower type if the plan says so (`reduction_dtype`, `reduction`).
"""

import importlib
import json
import pathlib

import keras
import numpy as np
import pytest
import replica_cases
import tensorflow as tf

from tests import processes
from tests.training import script_forks, two_workers
from tfx_perf.distribute import as_one_device
from tfx_perf.training.keras_api import either_keras

_PATIENCE_SECONDS = 3600  # each case is traced and trained separately

pytestmark = [pytest.mark.each_choice, pytest.mark.timeout(_PATIENCE_SECONDS)]

_SCRIPT = pathlib.Path(__file__).with_name("replica_cases.py")
_NOT_IN_XLA = {"own_train_step", "calls_keras_step", "noise_of_one"}
_NOT_SLICED = {
    "keras": {"own_train_step", "calls_keras_step", "uneven_weights"},
    "tf_keras": {"own_train_step", "calls_keras_step"},  # has no loss divided by the weights
}
# One for each reason why replicas could give a different result than one device.
_ONE_OF_EACH = {
    "accumulated", "overwritten", "short_sparse", "two_outputs", "uneven_batch", "normalized",
    "uneven_weights", "noise",
}  # fmt: skip
_OFTEN = {"short_sparse", "uneven_weights", "noise"}  # these also run in `make test`


def differences(package, replicas, plans, *, script=_SCRIPT):
    """Returns the differences that a process with this many replicas has found."""
    return found_by(script_forks.run(script, package, replicas, *plans, timeout=_PATIENCE_SECONDS))


def found_by(done):
    return json.loads(processes.last_line(done))


def check(found, plans, *, package, cases=()):
    every = replica_cases.optimizers(importlib.import_module(package))
    assert set(found) == set(cases or every)
    for case, by_plan in found.items():
        expected = {plan for plan in plans if plan != "fused" or case in replica_cases.FUSED}
        expected -= {"xla"} if case in _NOT_IN_XLA else set()
        expected -= {"sliced"} if case in _NOT_SLICED[package] else set()
        expected -= {"bfloat16", "float16"} if case not in replica_cases.NARROW else set()
        assert set(by_plan) == expected, case
        for plan, found_difference in by_plan.items():
            assert found_difference < 1e-5, f"{case}, {plan}: {by_plan}"


def differences_of_workers(package, names, *, script=_SCRIPT, worker_count=2):
    """Returns the differences that each worker has found."""
    each_ones = [(package, "workers", *names)] * worker_count
    return [*map(found_by, two_workers.run(script, each_ones, timeout=_PATIENCE_SECONDS))]


@pytest.mark.parametrize(
    ("package", "replicas", "plans"),
    [
        pytest.param("keras", "1", ("plain", "fused"), marks=pytest.mark.slow),
        pytest.param("keras", "2", ("fused", "sliced"), marks=pytest.mark.slow),
        pytest.param("keras", "4", ("plain", "calls", "fused", "xla"), marks=pytest.mark.slow),
        pytest.param("tf_keras", "2", ("plain", "fused", "xla"), marks=pytest.mark.slow),
        pytest.param("tf_keras", "4", ("calls", "sliced"), marks=pytest.mark.slow),
    ],
)
def test_replicas_of_one_process_train_as_one_device(package, replicas, plans):
    check(differences(package, replicas, plans), plans, package=package)


@pytest.mark.parametrize(
    "cases", [_OFTEN, pytest.param(_ONE_OF_EACH - _OFTEN, marks=pytest.mark.slow)]
)
def test_one_model_of_each_kind_trains_as_on_one_device(cases):
    found = differences("keras", "2", ["fused", *sorted(cases)])
    check(found, ["fused"], package="keras", cases=cases)


@pytest.mark.parametrize(
    "options",
    [
        {"gradient_accumulation_steps": 3},
        {"use_ema": True, "ema_overwrite_frequency": 2},
        {"gradient_accumulation_steps": 3, "use_ema": True, "ema_overwrite_frequency": 2},
    ],
    ids=["accumulated", "overwritten", "accumulated_average"],
)
def test_one_replica_updates_in_some_steps_only(options):
    def weights(strategy):
        with strategy.scope():
            keras.utils.set_random_seed(1)
            model = keras.Sequential([keras.Input([4]), keras.layers.Dense(1)])
            model.compile(keras.optimizers.AdamW(0.05, **options), "mse")
        rows = np.random.default_rng(1).normal(size=(32, 4)).astype("float32")
        data = tf.data.Dataset.from_tensor_slices((rows, rows[:, :1])).batch(4)
        with as_one_device.over_replicas(model, either_keras.api_of(model)):
            model.fit(data, epochs=2, verbose=0)
        return model.get_weights()

    found = weights(tf.distribute.MirroredStrategy(["CPU:0"]))
    for own, expected in zip(found, weights(tf.distribute.get_strategy()), strict=True):
        np.testing.assert_allclose(own, expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("worker_count", [2, 3])
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_workers_train_as_one_device(package, worker_count):
    plans = ("plain", "calls", "fused", "sliced", "bfloat16", "float16")
    for found in differences_of_workers(package, plans, worker_count=worker_count):
        check(found, plans, package=package)


_EVALUATING = str(pathlib.Path(__file__).with_name("evaluating_replicas.py"))


@pytest.mark.slow
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
@pytest.mark.parametrize("replicas", ["2", "workers"])
def test_replicas_evaluate_and_predict_as_one_device(package, replicas):
    if replicas == "workers":
        everywhere = differences_of_workers(package, (), script=_EVALUATING)
    else:
        everywhere = [differences(package, replicas, (), script=_EVALUATING)]
    for found in everywhere:
        assert max(found.values()) < 1e-5, found


_SUMS = str(pathlib.Path(__file__).with_name("narrow_sums.py"))
_NARROW = ("bfloat16", "float16")
_CASES = ("sgd", "calls", "fused", "sparse", "clipped", "scaled", "own_train_step", "overflow")
_ROWS_BYTES = 8 * 3  # of both replicas, and what the loss counts, in float64


def check_sums(found, cases):
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
        "2 steps per execution",
        *(f"2 steps per execution, gradients summed in {dtype}" for dtype in _NARROW),
    ]
    assert found["refusal"] is None or "Received: legacy.SGD" in found["refusal"]
    values = {dtype: means for dtype, (means, _) in found["sums"].items()}
    # What two replicas add up may be outside of the type's range, not their mean.
    assert values["float16"] == ["60000.0", "inf", "0.0", "inf", "nan"]
    assert values["bfloat16"] == ["59904.0", "999424.0", "9.968062e-10", "inf", "nan"]
    assert all(types == ["float32", "int32", "float16"] for _, types in found["sums"].values())


@pytest.mark.slow
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_replicas_sum_as_exactly_as_the_type_and_send_half(package):
    check_sums(differences(package, "2", _CASES, script=_SUMS), _CASES)


@pytest.mark.slow
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_workers_sum_as_exactly_as_the_type_and_send_half(package):
    for found in differences_of_workers(package, _CASES, script=_SUMS):
        check_sums(found, _CASES)
