"""The weights after 20 steps equal those of Keras' `fit`, for everything a plan can change.

The gradients of the `slices` of a batch add up to that of the whole batch.

The error of a variable is its largest deviation over its largest magnitude: elements that
happen to be near zero have no relative precision of their own.
"""

import keras as keras3
import numeric_models
import numpy as np
import pytest
from model_cases import Snapshot, assert_same_history, captured
from numeric_models import ARGUMENTS, FEATURES, MODELS, STEPS

from tfx_perf.core import errors
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.speedups import gradient_checkpointing
from tfx_perf.training.speedups.plan import TrainingPlan

pytestmark = pytest.mark.one_case

WHOLE = TrainingPlan(steps_per_execution=7)
SLICED = TrainingPlan(steps_per_execution=7, micro_batches=3)  # 3 + 3 + 2 of 8 rows
XLA = TrainingPlan(steps_per_execution=7, xla=True)
RECOMPUTED = TrainingPlan(steps_per_execution=7, micro_batches=3, gradient_checkpointing=3)
XLA_CALL = TrainingPlan(steps_per_execution=7, xla_loop=True)  # steps 1 + 6, 7, 6
SLICED_XLA = TrainingPlan(steps_per_execution=7, xla=True, micro_batches=3)

TOLERANCE = 1e-5


def deviation(found, expected):
    """Returns the largest error of any variable."""
    return max(
        np.max(np.abs(one - other), initial=0.0) / max(np.max(np.abs(other), initial=0.0), 1e-30)
        if np.any(one != other)
        else 0.0
        for one, other in zip(
            (value.astype("float64") for value in found),
            (value.astype("float64") for value in expected),
            strict=True,
        )
    )


def assert_equal_to_plain_fit(
    keras, build, plans, *, tolerance=TOLERANCE, slot_tolerance=None, **arguments
):
    keras.utils.set_random_seed(3)
    model, data = build(keras)
    call = captured(model, data, epochs=1, **arguments)
    before = Snapshot(model)
    expected = call.proceed()
    trained = Snapshot(model)
    assert deviation(before.values, trained.values) > 100 * tolerance  # it has learned something
    loop = FitLoop(call)
    model.train_function = model.test_function = None
    for plan in plans:
        before.restore()
        history, timer = loop.fit(plan)
        assert timer.step_count == STEPS
        found, count = Snapshot(model).values, len(model.variables)
        assert deviation(found[:count], trained.values[:count]) < tolerance, str(plan)
        assert deviation(found, trained.values) < (slot_tolerance or tolerance), str(plan)
        assert_same_history(history, expected, rtol=tolerance)
    return model


@pytest.mark.one_case
@pytest.mark.slow_where("*lstm", "tf_keras-transformer")
@pytest.mark.parametrize("name", MODELS)
def test_models(keras, name):
    assert_equal_to_plain_fit(keras, MODELS[name], [WHOLE, SLICED, XLA, XLA_CALL])


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_recomputed_activations(keras, name, monkeypatch):
    copied = []

    def spy(segments, seed, **arguments):
        original(segments, seed, **arguments)
        names = [operation.name for operation in seed.graph.get_operations()]
        copied.append(sum(name.startswith("recomputed/") for name in names))

    original = gradient_checkpointing.InSegments.__call__
    monkeypatch.setattr(gradient_checkpointing.InSegments, "__call__", spy)
    monkeypatch.setattr(gradient_checkpointing, "_SMALL_BYTES", 0)  # as are all tensors here
    assert_equal_to_plain_fit(keras, MODELS[name], [RECOMPUTED])
    # A dense model has no tensors between the kept ones; tf_keras makes a loop one operation.
    assert min(copied) > 0 or name in {"dense", "lstm"}


@pytest.mark.parametrize("name", FEATURES)
def test_features(keras, name):
    plans, arguments = [SLICED_XLA, XLA_CALL], ARGUMENTS.get(name, {})
    model = assert_equal_to_plain_fit(keras, FEATURES[name], plans, **arguments)
    if name == "overflow":
        scale = getattr(model.optimizer, "dynamic_scale", None)
        scale = model.optimizer.loss_scale if scale is None else scale
        # Doubled after the 6th step, halved at the 8th, doubled after the 14th and the 20th.
        assert float(scale) == 2.0**102
        skipped = 1 if keras is keras3 else 0  # tf_keras counts the steps that it skips
        assert int(model.optimizer.iterations) == STEPS - skipped


def test_batch_norm(keras):
    # Not in micro-batches, each of which would be normalized by itself.
    assert_equal_to_plain_fit(keras, numeric_models.batch_norm, [XLA, XLA_CALL])


@pytest.mark.slow
def test_prepared_inputs(keras):
    # Without the preparation XLA cannot compile it.
    assert_equal_to_plain_fit(keras, numeric_models.prepared, [XLA_CALL])


def test_half_precision(keras):
    # Slices and XLA round the gradients of float16 (11 bits) differently in every step.
    assert_equal_to_plain_fit(keras, numeric_models.half_precision, [WHOLE])
    assert_equal_to_plain_fit(
        keras, numeric_models.half_precision, [SLICED, XLA, XLA_CALL], tolerance=STEPS * 2.0**-11
    )


@pytest.mark.slow
def test_accumulation_by_the_optimizer():
    build = numeric_models.with_optimizer(
        lambda keras: keras.optimizers.Adam(gradient_accumulation_steps=3)
    )
    assert_equal_to_plain_fit(keras3, build, [SLICED_XLA, XLA_CALL])


def test_more_micro_batches_than_rows(keras):
    plan = TrainingPlan(steps_per_execution=7, micro_batches=50)
    assert_equal_to_plain_fit(keras, numeric_models.dense, [plan])


def test_a_summed_loss_cannot_be_sliced(keras):
    model, data = numeric_models.dense(keras)
    model.compile("sgd", keras.losses.MeanSquaredError(reduction="sum"))
    loop = FitLoop(captured(model, data))
    wrong = r"micro_batches=3, but .*not the mean over the rows"
    with pytest.raises(errors.UserError, match=wrong):
        loop.fit(SLICED)
