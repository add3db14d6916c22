"""`fit` on arrays with a plan, compared with Keras' own; every way in which it takes arrays."""

import importlib

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from tfx_perf.config import PerfConfig
from tfx_perf.core import interception
from tfx_perf.tf_internals import ancestry, datasets
from tfx_perf.training.keras_api import array_data
from tfx_perf.training.loop.eligibility import obstacle
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.tuning.choice import PlanChoice, plain

pytestmark = [pytest.mark.one_case, pytest.mark.usefixtures("no_flops", "saves_at_once")]

ROWS, SIZE, EPOCHS = 210, 16, 3
X = np.random.default_rng(0).normal(size=(ROWS, 4)).astype("float32")
Y = X[:, :1] * 2 + X[:, 1:2] ** 2
WEIGHTS = np.linspace(0.5, 1.5, ROWS, dtype="float32")
VALIDATION = X[:50], Y[:50]
DATASET = tf.data.Dataset.from_tensor_slices((X, Y)).batch(SIZE)
CASES = {
    "as it is": {},
    "no short batch": {"x": X[:160], "y": Y[:160]},
    "fewer rows than a batch": {"x": X[:5], "y": Y[:5]},
    "Keras' own batch size": {"batch_size": None},
    "in order": {"shuffle": False},
    "shuffled within batches": {"shuffle": "batch"},
    "float64": {"x": X.astype("float64"), "y": Y.astype("float64")},
    "integers": {"x": (X * 9).astype("int64")},
    "tensors": {"x": tf.constant(X), "y": tf.constant(Y)},
    "frames": {"x": pd.DataFrame(X), "y": pd.Series(Y[:, 0])},
    "frames, split": {"x": pd.DataFrame(X), "y": pd.Series(Y[:, 0]), "validation_split": 0.2},
    "sample weights": {"sample_weight": WEIGHTS},
    "class weights": {"y": (Y > 0).astype("int32"), "class_weight": {0: 1.0, 1: 3.0}},
    "split": {"validation_split": 0.2, "sample_weight": WEIGHTS},
    "validation": {"validation_data": VALIDATION},
    "validation as a list": {"validation_data": list(VALIDATION)},
    "weighted validation": {"validation_data": (*VALIDATION, WEIGHTS[:50])},
    "validation of another batch size": {"validation_data": VALIDATION, "validation_batch_size": 7},
    "a part of validation": {"validation_data": VALIDATION, "validation_steps": 2},
    "rare validation": {"validation_data": VALIDATION, "validation_freq": 2},
    "validation by a dataset": {"validation_data": DATASET.take(2)},
    "validation of unknown length": {"validation_data": DATASET.filter(lambda x, y: True)},
    "validation alone": {
        "x": DATASET,
        "y": None,
        "batch_size": None,
        "validation_data": VALIDATION,
    },
    "all steps": {"steps_per_epoch": 14},
    "a batch size of steps": {"steps_per_epoch": 10, "batch_size": None},
    "later epochs": {"initial_epoch": 1},
}
UNUSUAL = {
    "fewer steps than batches": {"steps_per_epoch": 10},
    "more steps than batches": {"steps_per_epoch": 20},
    "no epochs": {"initial_epoch": EPOCHS},
}


def new_model(keras):
    keras.utils.set_random_seed(1)
    layers = [keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("adam", "mse", metrics=["mae"])
    return model


def fitted(model, **given):
    return model.fit(
        **{"x": X, "y": Y, "batch_size": SIZE, "epochs": EPOCHS, "verbose": 0, **given}
    )


def planned(call, loop):
    reason = obstacle(call, loop)
    if reason:
        return plain(reason)
    return PlanChoice(plan=TrainingPlan(steps_per_execution=4), plan_reason="given")


def session_with(**training):
    return TrainingSession(PerfConfig.from_dict({"training": training}), choose=planned)


def fitted_by(session, model, **given):
    with interception.intercepting_fit(session.fit):
        return fitted(model, **given)


def assert_same(found, expected):
    """Compares a model and its History with those of Keras' `fit`."""
    (model, history), (own, own_history) = found, expected
    assert history.history == own_history.history
    assert history.params == own_history.params
    assert int(model.optimizer.iterations) == int(own.optimizer.iterations)
    for weights, own_weights in zip(model.get_weights(), own.get_weights(), strict=True):
        np.testing.assert_array_equal(weights, own_weights)


def assert_trains_as_alone(keras, make, **given):
    """Fits two models, one by a session, which it returns, and compares them."""
    model, own, session = make(keras), make(keras), session_with()
    expected = own, fitted(own, **given)
    keras.utils.set_random_seed(1)
    assert_same((model, fitted_by(session, model, **given)), expected)
    return session


def call_of(keras, **given):
    return interception.capture_fit(lambda: fitted(new_model(keras), **given))


@pytest.mark.parametrize("case", CASES)
def test_arrays_train_by_a_plan_as_in_keras_alone(keras, case):
    session = assert_trains_as_alone(keras, new_model, **CASES[case])
    assert session.record.plan.steps_per_execution == 4


@pytest.mark.parametrize("case", UNUSUAL)
def test_unusual_lengths_train_as_in_keras_alone(keras, case):
    assert_trains_as_alone(keras, new_model, **UNUSUAL[case])


def test_nested_inputs_and_outputs_train_by_a_plan(keras):
    def model_of_two(keras):
        keras.utils.set_random_seed(1)
        a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
        joined = keras.layers.Concatenate()([a, b])
        ends = [keras.layers.Dense(1, name=name)(joined) for name in ("one", "two")]
        model = keras.Model({"a": a, "b": b}, ends)
        model.compile("adam", ["mse", "mae"])
        return model

    given = {"x": {"a": X, "b": X[::-1]}, "y": [Y, -Y], "validation_split": 0.25}
    session = assert_trains_as_alone(keras, model_of_two, **given)
    assert session.record.plan.steps_per_execution == 4


def test_trials_on_arrays_change_nothing_in_what_is_trained(keras):
    own, model = new_model(keras), new_model(keras)
    expected = own, fitted(own)
    settings = {"training": {"tuning_seconds": 30.0}, "schedule": {"expected_runs": 10**6}}
    session = TrainingSession(PerfConfig.from_dict(settings))
    keras.utils.set_random_seed(1)
    history = fitted_by(session, model)
    assert [trial for trial in session.record.trials if not trial.plan.is_plain_fit]
    np.testing.assert_allclose(history.history["loss"], expected[1].history["loss"], rtol=1e-5)


class _Interrupted(Exception):
    pass


@pytest.mark.parametrize("shuffle", [True, "batch"])
def test_a_training_on_arrays_resumes_exactly_in_the_middle_of_an_epoch(keras, shuffle, tmp_path):
    class Interrupting(keras.callbacks.Callback):
        epoch = 0

        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_end(self, batch, logs=None):
            if (self.epoch, batch) == (1, 9):
                raise _Interrupted

    training = {"checkpoint_folder": str(tmp_path), "checkpoint_every_steps": 4}
    given = {"shuffle": shuffle, "validation_split": 0.2}
    own = new_model(keras)
    expected = own, fitted(own, **given)
    model = new_model(keras)
    with pytest.raises(_Interrupted):
        fitted_by(session_with(**training), model, callbacks=[Interrupting()], **given)
    model, session = new_model(keras), session_with(**training)
    history = fitted_by(session, model, **given)
    assert session.record.resumed_step > 14
    assert_same((model, history), expected)


@pytest.mark.parametrize("changed", [{"x": X + 1}, {"sample_weight": WEIGHTS}])
def test_a_training_does_not_resume_with_other_arrays(keras, changed, tmp_path):
    def raise_at_last(epoch, logs):
        if epoch == EPOCHS - 1:
            raise _Interrupted

    training = {"checkpoint_folder": str(tmp_path), "checkpoint_every_steps": 4}
    interrupting = keras.callbacks.LambdaCallback(on_epoch_end=raise_at_last)
    with pytest.raises(_Interrupted):
        fitted_by(session_with(**training), new_model(keras), callbacks=[interrupting])
    session = session_with(**training)
    fitted_by(session, new_model(keras), **changed)
    assert session.record.resumed_step is None


def test_arrays_are_not_copied_to_look_at_them(keras):
    data = array_data.on_datasets(call_of(keras)).arguments["x"]
    assert ancestry.independent(data) is data
    assert ancestry.graph_of(data.repeat()) is None
    assert datasets.operations(data) == set()
    assert ancestry.batch_size(data) == SIZE


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("a generator", {"x": iter([(X, Y)]), "y": None, "steps_per_epoch": 1}),
        ("arrays that do not fit", {"y": Y[:7]}),
        ("words without numbers", {"x": [["a"], ["b"]], "y": [1, 2]}),
    ],
)
def test_data_that_are_not_arrays_are_unchanged(keras, name, given):
    call = call_of(keras, **given)
    assert array_data.on_datasets(call).arguments == call.arguments


def test_keras_own_error_tells_of_arrays_that_do_not_fit(keras):
    with pytest.raises(ValueError, match="cardinality is ambiguous"):
        fitted_by(session_with(), new_model(keras), y=Y[:7])


def test_both_packages_read_arrays_as_is_known_here():
    """A contract: `fit` of a new version may read them through something else."""
    for name in ("keras", "tf_keras"):
        package = importlib.import_module(name)
        data = array_data.on_datasets(call_of(package)).arguments["x"]
        assert isinstance(data, tf.data.Dataset), name
