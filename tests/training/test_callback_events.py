"""Callbacks get the same hooks, arguments and parameters as in Keras' `fit`."""

import model_cases
import numpy as np
import pytest
import tensorflow as tf
from model_cases import Snapshot, assert_same, assert_same_history, captured, session_with

from tfx_perf.training.fit.fit_arguments import callback_list
from tfx_perf.training.loop.eligibility import obstacle
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.speedups.plan import TrainingPlan

pytestmark = pytest.mark.one_case

PLAN = TrainingPlan(steps_per_execution=7)
EPOCH_HOOKS = ("on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end")
EPOCH_HOOKS += ("on_test_begin", "on_test_end")


def recorder_of(keras, hooks=EPOCH_HOOKS):
    """Returns a callback that records its hooks, and the list of these records."""
    events = []

    class Recorder(keras.callbacks.Callback):
        pass

    def hook(name):
        def note(self, *args, **kwargs):
            args = [dict(a) if isinstance(a, dict) else a for a in args]
            kwargs = {key: dict(value or {}) for key, value in kwargs.items()}
            events.append((name, args, kwargs, dict(getattr(self, "params", None) or {})))

        return note

    for name in hooks:
        setattr(Recorder, name, hook(name))
    return Recorder(), events


def assert_same_events(found, expected):
    assert [event[0] for event in found] == [event[0] for event in expected]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_equal(one[3], other[3])
        tf.nest.map_structure(_assert_close, one[1:3], other[1:3])


def _assert_close(one, other):
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def run_both(model, callbacks_of, **arguments):
    """Trains with Keras' `fit` and with the plan; returns the results of both."""
    arguments = {"validation_data": model_cases.regression(), **arguments}
    data = arguments.pop("data", None) or model_cases.regression()
    call = captured(model, data, **arguments)
    before, results = Snapshot(model), []
    for plan in None, PLAN:
        before.restore()
        model.train_function = model.test_function = None
        callbacks, noted = callbacks_of()
        call.arguments["callbacks"] = callbacks
        loop = FitLoop(call)
        assert obstacle(call, loop) is None
        history = call.proceed() if plan is None else loop.fit(plan).history
        steps = int(model.optimizer.iterations.numpy())
        results.append((Snapshot(model), history, noted, steps))
    return results


@pytest.mark.parametrize("verbose", [0, 2])
def test_hooks_arguments_and_parameters(keras, verbose):
    def callbacks():
        callback, events = recorder_of(keras)
        return [callback], events

    expected, found = run_both(model_cases.dense(keras), callbacks, verbose=verbose)
    assert len(found[2]) == 10
    assert_same_events(found[2], expected[2])
    assert_same(found[0], expected[0])
    data = model_cases.regression().repeat()
    expected, found = run_both(
        model_cases.dense(keras), callbacks, verbose=verbose, data=data, steps_per_epoch=9
    )
    assert_same_events(found[2], expected[2])


@pytest.mark.parametrize("hook", ["on_train_begin", "on_epoch_begin", "on_epoch_end"])
@pytest.mark.parametrize("users_steps", [1, 2])
def test_stop_training_ends_the_training_where_plain_fit_ends(keras, hook, users_steps):
    model = model_cases.dense(keras)
    model.compile(optimizer="sgd", loss="mse", steps_per_execution=users_steps)

    def callbacks():
        def stop(*args, **kwargs):
            model.stop_training = True

        return [keras.callbacks.LambdaCallback(**{hook: stop})], None

    expected, found = run_both(model, callbacks, epochs=4)
    assert found[3] == expected[3]
    assert_same(found[0], expected[0])
    assert_same_history(found[1], expected[1])


@pytest.mark.parametrize("add_history", [True, False])
def test_a_callback_list_is_used_as_it_is(keras, add_history):
    lists = []

    def callbacks():
        first, events = recorder_of(keras)
        second, _ = recorder_of(keras)
        given = keras.callbacks.CallbackList(
            [first, second], add_history=add_history, model=model, epochs=77, steps=5, verbose=3
        )
        model.history = "what was there"
        lists.append((given, list(given.callbacks)))
        return given, events

    model = model_cases.dense(keras)
    expected, found = run_both(model, callbacks)
    assert found[2][0][3] == {"epochs": 77, "steps": 5, "verbose": 3}
    assert_same_events(found[2], expected[2])
    assert_same(found[0], expected[0])
    for given, own in lists:
        assert all(a is b for a, b in zip(given.callbacks, own, strict=True))
    if add_history:
        assert_same_history(found[1], expected[1])
        assert found[1] is lists[1][1][-1]
    else:
        assert found[1] == expected[1] == "what was there"


@pytest.mark.usefixtures("no_flops")
def test_a_guarded_fit_uses_a_callback_list_as_it_is(keras):
    model = model_cases.dense(keras)
    callback, events = recorder_of(keras)
    given = keras.callbacks.CallbackList([callback])  # without a model and parameters
    model.history = "what was there"
    call = captured(model, model_cases.regression(), callbacks=given)
    assert session_with(PLAN).fit(call) == "what was there"
    assert [event[0] for event in events][:2] == ["on_train_begin", "on_epoch_begin"]
    assert given.callbacks == [callback]


def test_a_callback_with_an_attribute_callbacks_is_not_a_list(keras):
    callback, events = recorder_of(keras)
    callback.callbacks = ["something else"]
    assert callback_list(callback) == [callback]
    assert callback_list([callback]) == [callback]
    call = captured(model_cases.dense(keras), model_cases.regression(), callbacks=callback)
    FitLoop(call).fit(PLAN)
    assert [event[0] for event in events[:2]] == ["on_train_begin", "on_epoch_begin"]


def of_the_instance(keras):
    callback = keras.callbacks.Callback()
    callback.on_train_batch_end = lambda batch, logs=None: None
    return callback


def of_a_base_class(keras):
    class Mixin:
        def on_train_batch_end(self, batch, logs=None):
            pass

    class Mine(Mixin, keras.callbacks.Callback):
        pass

    return Mine()


def from_getattribute(keras):
    class Mine(keras.callbacks.Callback):
        def __getattribute__(self, name):
            if name == "on_batch_end":
                return lambda batch, logs=None: None
            return super().__getattribute__(name)

    return Mine()


@pytest.mark.parametrize("make", [of_the_instance, of_a_base_class, from_getattribute])
def test_batch_hooks_are_seen_wherever_they_are_defined(keras, make):
    call = captured(model_cases.dense(keras), model_cases.regression(), callbacks=[make(keras)])
    assert "the callback" in obstacle(call, FitLoop(call))
