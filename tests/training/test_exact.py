"""Trainings that must repeat bit for bit: `families.must_be_exact`."""

import model_cases
import numeric_models
import numpy as np
import pytest
from tensorflow.python.framework import config as tensorflow_config
from test_session import by_plan, session_with

from tfx_perf.config import PerfConfig
from tfx_perf.core import errors
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.tuning import families
from tfx_perf.training.tuning.state_tolerance import StateTolerance, TrainedState

pytestmark = pytest.mark.one_case

INEXACT = {"excluded_speedups": ["inexact"]}


def trained(keras, name, fit):
    keras.utils.set_random_seed(1)
    model, data = getattr(numeric_models, name)(keras)
    call = model_cases.captured(model, data.repeat(), steps_per_epoch=300)
    fit(call)
    return [np.asarray(each) for each in model.get_weights()]


@pytest.mark.usefixtures("long_calls")
@pytest.mark.parametrize("name", ["dense", "cnn", "lstm", "wide_and_deep"])
def test_the_plan_gives_keras_fits_weights_bit_for_bit(keras, name):
    expected = trained(keras, name, lambda call: call.proceed())
    session = session_with(xla=True, **INEXACT)
    found = trained(keras, name, session.fit)
    assert {each.name for each in session.record.plan.speedups} <= {"steps_per_execution"}
    if name == "dense":
        assert session.record.plan.steps_per_execution > 1
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("long_calls")
def test_the_same_holds_if_operations_must_be_deterministic(keras):
    assert not families.must_be_exact(PerfConfig())
    tensorflow_config.enable_op_determinism()
    try:
        session = session_with(xla=True)
        trained(keras, "dense", session.fit)
    finally:
        tensorflow_config.disable_op_determinism()
    assert {*by_plan(session.record)} <= {
        "Keras fit",
        "10 steps per execution",
        "50 steps per execution",
    }


def test_a_single_rounding_error_is_too_much():
    values = {"kernel": np.full(100, 0.1, "float32")}
    logs = {"loss": np.float32(1)}
    state_tolerance = StateTolerance(
        TrainedState(values, logs), metrics=[], examples=20, is_exact=True
    )
    assert state_tolerance.exceeded(TrainedState(values, logs), loss_tolerance=0.01) is None
    rounded = {"kernel": np.nextafter(values["kernel"], np.float32(1))}
    other_loss = {"loss": np.nextafter(logs["loss"], np.float32(2))}
    for other in (TrainedState(rounded, logs), TrainedState(values, other_loss)):
        found = state_tolerance.exceeded(other, loss_tolerance=0.01)
        assert str(found).endswith("of its size, but must not")


def test_no_precision_is_tried():
    with pytest.raises(errors.UserError, match="one precision"):
        PerfConfig.from_dict({"training": {**INEXACT, "precision": "auto"}})
    auto = PerfConfig.from_dict({"training": {"precision": "auto"}})
    plan = TrainingPlan(steps_per_execution=5, precision="mixed_bfloat16", onednn=True)
    assert families.allowed(plan, auto) == plan
    tensorflow_config.enable_op_determinism()
    try:
        assert families.allowed(plan, auto) == TrainingPlan(steps_per_execution=5)
    finally:
        tensorflow_config.disable_op_determinism()
