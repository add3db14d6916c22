"""NaN, full disks and unreadable data.

A `guard` has a `checkpoint_writer` write, and raises a `divergence`; `fit_recovery` resumes.
"""

import contextlib
import logging
import resource
import time

import model_cases
import numpy as np
import pytest
import tensorflow as tf
from model_cases import (
    Snapshot,
    assert_same,
    assert_same_history,
    captured,
    plain_fit,
    without_autotune,
)

from tfx_perf.config import PerfConfig
from tfx_perf.core import errors, interception
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.recovery import checkpoint_store, checkpoint_writer
from tfx_perf.training.recovery.checkpoint import MemorySnapshot
from tfx_perf.training.recovery.training_state import StateMismatchError
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.speedups import train_functions
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.step.split_step import SplitStep
from tfx_perf.training.step.steps import MultiStep
from tfx_perf.training.tuning.choice import PlanChoice, TrialRecord
from tfx_perf.training.tuning.plan_key import fit_key

pytestmark = [pytest.mark.one_case, pytest.mark.usefixtures("no_flops", "saves_at_once")]

PLAN = TrainingPlan(steps_per_execution=4)


def session_with(plan=PLAN, distribution=None, **training):
    training = {"checkpoint_every_steps": 4, **training}
    return model_cases.session_with(plan, training=training, distribution=distribution)


def numbers(*, bad_batch=None, bad=np.nan):
    """Returns data of 10 batches, one of them with one bad value."""
    x, y = model_cases.features(4), model_cases.features(1, seed=1)
    if bad_batch is not None:
        x[bad_batch * model_cases.BATCH_SIZE + 3, 2] = bad
    data = tf.data.Dataset.from_tensor_slices(({"a": x[:, :2], "b": x[:, 2:]}, y))
    return without_autotune(data.batch(model_cases.BATCH_SIZE))


def model_of_two(keras, *, activation=None, rate=0.01):
    a, b = keras.Input((2,), name="a"), keras.Input((2,), name="b")
    joined = keras.layers.Concatenate()([a, b])
    model = keras.Model({"a": a, "b": b}, keras.layers.Dense(1, activation=activation)(joined))
    model.compile(optimizer=keras.optimizers.SGD(rate), loss="mse")
    return model


IN_B = r"in step 7, first in input .'b'., 1 of 16 values"
BLOW_UPS = {
    "plain": (PLAIN_FIT, {"bad_batch": 6}, {}, {}, IN_B),
    "plan": (PLAN, {"bad_batch": 6}, {}, {}, IN_B),
    # The bad weights do not show in the loss.
    "relu": (PLAN, {"bad_batch": 6}, {"activation": "relu"}, {}, IN_B),
    "seldom": (
        PLAN, {"bad_batch": 6}, {"activation": "relu"}, {"checkpoint_every_steps": 1000}, IN_B
    ),
    "growing": (PLAIN_FIT, {}, {"rate": 4.0}, {}, r"in step \d+, first in .*learning rate"),
    "rate": (PLAN, {}, {"rate": float("nan")}, {}, "first in learning rate.*finite"),
    "bound": (
        PLAN, {}, {"rate": 4.0}, {"max_loss": 50.0}, r"above max_loss=50,.* step \d"
    ),
}  # fmt: skip


@pytest.mark.each_choice
@pytest.mark.slow_where("*growing", "*plan", "*seldom")
@pytest.mark.parametrize("name", BLOW_UPS)
def test_a_divergence_is_named(keras, name, tmp_path):
    plan, data, model, training, words = BLOW_UPS[name]
    call = captured(model_of_two(keras, **model), numbers(**data), epochs=30 if not data else 2)
    with pytest.raises(errors.UserError, match=words):
        session_with(plan, checkpoint_folder=str(tmp_path), **training).fit(call)


def test_the_users_own_callback_ends_the_training(keras):
    callbacks = [keras.callbacks.TerminateOnNaN()]
    call = captured(model_of_two(keras), numbers(bad_batch=2), callbacks=callbacks)
    history = session_with().fit(call)
    assert len(history.epoch) == 1


def test_a_divergence_only_under_a_plan_is_undone(keras, tmp_path, monkeypatch):
    """A step that diverges with XLA from the seventh step on."""
    call = captured(model_of_two(keras), numbers())
    model = call.model
    expected, trained = plain_fit(call)

    class Planted(SplitStep):
        def __init__(self, *args, xla=False, **options):
            super().__init__(*args, **options)
            self.is_late_with_xla = xla

        def run(self, batch, *slicing):
            logs = super().run(batch, *slicing)
            if not self.is_late_with_xla:
                return logs
            late = tf.cast(model.optimizer.iterations, tf.int32) >= 7
            for weight in model.trainable_variables:
                weight.assign(tf.where(late, np.nan, tf.convert_to_tensor(weight)))
            return {name: tf.where(late, np.nan, value) for name, value in logs.items()}

    monkeypatch.setattr(train_functions, "SplitStep", Planted)
    session = session_with(PLAN.model_copy(update={"xla": True}), checkpoint_folder=str(tmp_path))
    history = session.fit(call)
    assert_same(Snapshot(model), trained)
    assert history.history["loss"] == pytest.approx(expected.history["loss"])
    assert history.epoch == [0, 1]
    assert session.record.plan == PLAN
    assert "rolled back to step 4" in session.record.notes[0]


def scaling_optimizer(keras):
    """Returns an optimizer whose loss scale doubles with every step, to Inf."""
    found = (keras.optimizers, keras.mixed_precision)[keras.__name__ == "tf_keras"]
    inner = keras.optimizers.SGD(1e-9)
    # From so high a scale, the third doubling leads to Inf.
    return found.LossScaleOptimizer(inner, initial_scale=2.0**125, dynamic_growth_steps=1)


def growing_layer(keras):
    """Returns a layer whose own variables become Inf in the training, or start as Inf."""

    class Growing(keras.layers.Layer):
        def build(self, shape):
            self.largest = self.add_weight(
                name="largest", shape=(), initializer="ones", trainable=False
            )
            self.best = tf.Variable(np.inf)  # tf_keras counts it as a trainable weight

        def call(self, inputs):
            self.largest.assign(tf.convert_to_tensor(self.largest) * 1e30)
            self.best.assign(tf.minimum(self.best, tf.reduce_mean(inputs)))
            return inputs

    return Growing()


@pytest.mark.parametrize("plan", [PLAIN_FIT, PLAN])
@pytest.mark.parametrize("what", ["loss scale", "accumulators", "own variables"])
def test_infinity_outside_of_the_weights_ends_nothing(keras, plan, what, tmp_path):
    inputs = {name: keras.Input((2,), name=name) for name in "ab"}
    joined = keras.layers.Concatenate()(list(inputs.values()))
    if what == "own variables":
        joined = growing_layer(keras)(joined)
    model = keras.Model(inputs, keras.layers.Dense(1)(joined))
    is_scaled = what == "loss scale"
    optimizer = scaling_optimizer(keras) if is_scaled else keras.optimizers.Adagrad(0.01)
    factor = {"loss scale": 1e-20, "accumulators": 1e25}.get(what, 1.0)
    model.compile(optimizer=optimizer, loss=lambda y, y_pred: factor * (y_pred - y))

    class Forgetting(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            for layer in model.layers:
                if hasattr(layer, "best"):
                    layer.best.assign(np.inf)

    call = captured(model, numbers(), epochs=2, callbacks=[Forgetting()])
    expected, trained = plain_fit(call)
    # A loss scale of tf_keras stops growing at the largest finite number.
    is_finite = is_scaled and keras.__name__ == "tf_keras"
    assert is_finite == all(np.isfinite(value).all() for value in trained.values)
    found = session_with(plan, checkpoint_folder=str(tmp_path)).fit(call)
    assert all(np.isfinite(weight).all() for weight in model.layers[-1].get_weights())
    assert_same(trained, Snapshot(model))
    assert_same_history(expected, found)


@contextlib.contextmanager
def files_no_larger_than(size_bytes):
    """Imitates a full disk: every write beyond the size fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_training_goes_on_without_room_for_checkpoints(keras, tmp_path, caplog):
    model = model_of_two(keras)
    full = []

    def fill_up(epoch, logs):
        if epoch == 0:
            full.append(stack.enter_context(files_no_larger_than(100)))

    call = captured(
        model, numbers(), callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=fill_up)]
    )
    session = session_with(checkpoint_folder=str(tmp_path))
    with contextlib.ExitStack() as stack, caplog.at_level(logging.WARNING):
        history = session.fit(call)
    assert history.epoch == [0, 1]
    assert caplog.text.count("could not be written") == 1
    kept = sorted(path.name[:23] for path in (tmp_path / "fit-0").glob("*/checkpoint-*"))
    assert kept == [f"checkpoint-{step:012d}" for step in (4, 8)]
    assert any("could not be written" in note for note in session.record.notes)


OTHERS = {
    "optimizer learning_rate 0": ({}, {"rate": 0.02}),
    "training.seed None -> 1": ({"seed": 1}, {}),
    "distribution.reduction_dtype None -> bfloat16": (
        {"distribution": {"reduction_dtype": "bfloat16"}}, {}
    ),
}  # fmt: skip


@pytest.mark.parametrize("difference", OTHERS)
def test_another_training_is_not_resumed_and_keeps_its_checkpoints(
    keras, tmp_path, caplog, difference
):
    def trained(settings, model):
        session = session_with(checkpoint_folder=str(tmp_path), **settings)
        session.fit(captured(model_of_two(keras, **model), numbers()))
        return session.record.resumed_step

    trained({}, {})
    with caplog.at_level(logging.WARNING):
        assert trained(*OTHERS[difference]) is None
    assert f"belongs to another training and is not used: {difference}" in caplog.text
    assert trained({}, {}) == 20


def test_a_training_that_cannot_be_saved_runs_without_checkpoints(keras, tmp_path):
    model = model_cases.dense(keras)
    batch = model_cases.features(4), model_cases.features(1, seed=1)
    arguments = captured(model, model_cases.regression(), steps_per_epoch=4).arguments
    arguments["x"] = (each for each in [batch] * 8)
    call = interception.FitCall(model, arguments, keras.Model.fit)
    session = session_with(PLAIN_FIT, checkpoint_folder=str(tmp_path))
    session.fit(call)
    assert session.record.notes[0] == "no checkpoints: x is a generator, not a tf.data.Dataset"


def without_cause():
    """Raises as a step would that its plan has broken."""
    raise tf.errors.InternalError(None, None, "planted")


def test_a_plan_that_raises_is_replaced_by_keras_fit(keras, monkeypatch, tmp_path):
    call = captured(model_of_two(keras), numbers())
    history, trained = plain_fit(call)
    own, calls = MultiStep.run, []

    def run(self, iterator, count, **slicing):
        calls.append(count)
        return own(self, iterator, count, **slicing) if len(calls) < 4 else without_cause()

    monkeypatch.setattr(MultiStep, "run", run)
    session = session_with(checkpoint_folder=str(tmp_path))
    found = session.fit(call)
    assert_same_history(found, history)
    assert_same(Snapshot(call.model), trained)
    assert session.record.plan == PLAIN_FIT
    assert "planted with 4 steps per execution: rolled back" in session.record.notes[0]


@pytest.mark.slow
def test_bad_weights_are_not_trained_on_if_they_cannot_be_restored(keras, monkeypatch):
    """Only a process that has just begun can start from scratch."""
    call = captured(model_of_two(keras), numbers(bad_batch=2))

    def restore(*_):
        raise StateMismatchError("planted")

    monkeypatch.setattr(MemorySnapshot, "restore", restore)
    with pytest.raises(errors.UserError, match="Received: planted.*rolled back to step 0"):
        session_with().fit(call)


def test_an_error_that_keras_fit_raises_too_is_raised(keras):
    """The error does not blame an innocent plan, and the training does not retry forever."""
    x, y = model_cases.features(4), model_cases.features(1)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)

    def checked(x, y):
        tf.debugging.assert_less(x, 1.5, message="too large")
        return x, y

    data = data.map(checked)
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(loss="mse")
    with pytest.raises(tf.errors.InvalidArgumentError, match="too large"):
        session_with().fit(captured(model, without_autotune(data)))


def test_an_error_of_a_callback_is_raised_at_once(keras, tmp_path):
    """A full disk under a callback is not a step's lack of memory."""
    epochs = []

    def fill(epoch, logs=None):
        epochs.append(epoch)
        raise tf.errors.ResourceExhaustedError(None, None, "disk quota exceeded")

    callbacks = [keras.callbacks.LambdaCallback(on_epoch_end=fill)]
    call = captured(model_of_two(keras), numbers(), callbacks=callbacks)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="quota"):
        session_with(checkpoint_folder=str(tmp_path)).fit(call)
    assert epochs == [0]


@pytest.mark.slow
def test_a_plan_that_repeatedly_ends_its_process_is_abandoned(keras, tmp_path):
    call = captured(model_of_two(keras), numbers())
    for _ in range(checkpoint_store.MOST_ATTEMPTS):  # all that a killed process leaves
        session = session_with(checkpoint_folder=str(tmp_path))
        recovery, _ = session._recovery(call, session._loop_for(call))
        assert recovery._store.begin_attempt(PLAN, step=0)
    session = session_with(checkpoint_folder=str(tmp_path))
    session.fit(call)
    assert session.record.plan == PLAIN_FIT
    assert "had ended its process 2 times" in session.record.notes[0]
    # That training succeeded, so that the plan may be used again.
    session = session_with(checkpoint_folder=str(tmp_path / "other"))
    session.fit(captured(model_of_two(keras), numbers()))
    assert session.record.plan == PLAN


def test_a_divergence_that_does_not_recur_is_noted(keras, monkeypatch):
    call = captured(model_of_two(keras), numbers())
    spoiled = []

    def spoil(batch, logs=None):
        if int(call.model.optimizer.iterations) == 7 and not spoiled:
            spoiled.append(batch)
            call.model.trainable_variables[0].assign(
                np.full(call.model.trainable_variables[0].shape, np.nan, "float32")
            )

    callbacks = [keras.callbacks.LambdaCallback(on_train_batch_end=spoil)]
    call = captured(call.model, numbers(), callbacks=callbacks)
    session = session_with(PLAIN_FIT)
    history = session.fit(call)
    assert np.all(np.isfinite(history.history["loss"]))
    assert history.epoch == [0, 1]
    assert any("it did not recur" in note for note in session.record.notes)


@pytest.mark.parametrize("is_same", [True, False])
def test_a_resumed_training_knows_the_results_of_trials(keras, tmp_path, is_same, caplog):
    settings = PerfConfig.from_dict(
        {"training": {"checkpoint_every_steps": 4, "checkpoint_folder": str(tmp_path)}}
    )
    call = captured(model_of_two(keras), numbers())
    failed = TrialRecord(plan=PLAN.model_copy(update={"xla": True}), status="failed", reason="-")
    found = PlanChoice(
        plan=PLAN,
        plan_reason="given",
        is_settled=True,
        trials=(failed,),
        fit=fit_key(call, FitLoop(call)),
    )

    def fail(batch, logs=None):
        raise RuntimeError("planted")

    callbacks = [keras.callbacks.LambdaCallback(on_epoch_end=fail)]
    with pytest.raises(RuntimeError, match="planted"):
        TrainingSession(settings, choice=found).fit(
            captured(model_of_two(keras), numbers(), callbacks=callbacks)
        )
    assert "The next run resumes from step" in caplog.text
    if not is_same:
        longer = PLAN.model_copy(update={"steps_per_execution": 5})
        found = found.model_copy(update={"plan": longer})
    session = TrainingSession(settings, choice=found)
    session.fit(captured(model_of_two(keras), numbers()))
    record = session.record
    assert record.plan == PLAN
    assert record.resumed_step >= 4
    next_one = record.for_another_run("here", expected_runs=1)
    assert (next_one is not None) is is_same
    assert (failed in record.trials) is is_same


def test_the_time_of_choosing_a_plan_does_not_make_a_checkpoint_due(keras, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_writer, "_SAVE_SHARE", 1000)  # times the first save: 40 s
    session = session_with(checkpoint_folder=str(tmp_path))
    ahead = time.perf_counter
    spent = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: ahead() + spent[0])

    def choose(call, loop):
        spent[0] += 300
        return PlanChoice(plan=PLAN, plan_reason="given")

    session._choose = choose
    session.fit(captured(model_of_two(keras), numbers(), epochs=2))
    assert session.record.checkpoint_time_seconds == 0
    assert not list(tmp_path.rglob("checkpoint-*"))


def test_fits_in_a_loop_trace_once_and_leave_no_folders(keras, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_writer, "_SAVE_SHARE", 1e6)  # even on a busy machine
    model = model_of_two(keras)
    session = session_with(PLAIN_FIT, checkpoint_folder=str(tmp_path))
    traced = []
    own = model.train_step
    model.train_step = lambda data: (traced.append(data), own(data))[1]
    for epoch in range(5):
        call = interception.capture_fit(
            lambda e=epoch: model.fit(numbers(), initial_epoch=e, epochs=e + 1, verbose=0)
        )
        assert session.fit(call).epoch == [epoch]
    assert len(traced) <= 2
    assert not list(tmp_path.rglob("checkpoint-*"))
