"""Callbacks that train, evaluate or unfreeze find the model as in Keras' `fit`.

Our `train_functions` replace those of Keras only for the running `fit`, by a `takeover`.
"""

import contextlib
import copy
import functools
import gc
import importlib
import pickle

import model_cases
import numpy as np
import pytest
import tensorflow as tf
from model_cases import assert_same_history, session_with, without_autotune

from tfx_perf.core import interception
from tfx_perf.training.keras_api import variables
from tfx_perf.training.recovery.checkpoint import MemorySnapshot
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan

pytestmark = [pytest.mark.one_case, pytest.mark.usefixtures("no_flops")]

PLANS = {
    "plain": PLAIN_FIT,
    "four": TrainingPlan(steps_per_execution=4),
    "xla_loop": TrainingPlan(steps_per_execution=4, xla_loop=True),
}


def data():
    return without_autotune(model_cases.regression())


def other_data():
    x, y = model_cases.features(4, seed=5), model_cases.features(1, seed=6)
    return without_autotune(tf.data.Dataset.from_tensor_slices((x, y)).batch(5).take(3))


def model_of(keras, seed=3):
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((4,)), layers.Dense(8, activation="relu", name="hidden"), layers.Dense(1)]
    )
    model.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.9), loss="mse", metrics=["mae"])
    model.optimizer.build(model.trainable_variables)  # so that it knows the frozen weights
    return model


def batch():
    return model_cases.features(4, seed=7)[:8], model_cases.features(1, seed=8)[:8]


def trains_on_batch(model, seen):
    seen.append(model.train_on_batch(*batch()))
    seen.append(model.train_on_batch(batch()[0][:3], batch()[1][:3], return_dict=True))


def fits(model, seen):
    seen.append(model.fit(other_data(), epochs=2, verbose=0).history)
    x, y = batch()
    seen.append(model.fit(x, y, batch_size=3, verbose=0, shuffle=False).history)
    seen.append(model.fit(data(), verbose=0, validation_data=other_data()).history)


def evaluates(model, seen):
    seen.append(model.evaluate(other_data(), verbose=0))
    seen.append(model.test_on_batch(*batch()))
    seen.append(model.predict(other_data(), verbose=0))
    seen.append(model.predict_on_batch(batch()[0]))


def freezes(model, seen):
    layer = model.get_layer("hidden")
    layer.trainable = not layer.trainable
    model.make_train_function(force=True)


def remakes(model, seen):
    model.train_function = None
    model.train_function = model.make_train_function() or model.train_function


def freezes_and_trains(model, seen):
    freezes(model, seen)
    trains_on_batch(model, seen)


ACTIONS = [trains_on_batch, fits, evaluates, freezes, remakes, freezes_and_trains]


def fitted(model, plan="four", **given):
    """Fits with a plan, or as Keras does."""
    is_ours = plan is not None
    with interception.intercepting_fit(session_with(PLANS[plan]).fit) if is_ours else (
        contextlib.nullcontext()
    ):
        return model.fit(**{"x": data(), "verbose": 0, "validation_data": other_data(), **given})


def run(keras, act, hook, plan):
    """Trains, with Keras' `fit` if there is no plan; returns everything that must be equal."""
    model, seen = model_of(keras), []

    def do(*args, **kwargs):
        if len(seen) < 12:  # there are many batch hooks
            act(model, seen)
            seen.append(int(model.optimizer.iterations.numpy()))

    callback = keras.callbacks.LambdaCallback(**{hook: do})
    session = session_with(plan) if plan is not None else None
    handler = session.fit if session else lambda call: call.proceed()
    with interception.intercepting_fit(handler):
        history = model.fit(
            data(), epochs=3, verbose=0, callbacks=[callback], validation_data=other_data()
        )
    assert session is None or session.record.plan == plan
    return model, seen, history


def assert_equal_runs(found, expected):
    model, seen, history = found
    plain_model, plain_seen, plain_history = expected
    assert int(model.optimizer.iterations.numpy()) == int(plain_model.optimizer.iterations.numpy())
    for one, other in zip(model.get_weights(), plain_model.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    assert_same_history(history, plain_history, rtol=1e-4)
    assert len(seen) == len(plain_seen)
    for one, other in zip(seen, plain_seen, strict=True):
        tf.nest.map_structure(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), one, other
        )


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("act", ACTIONS, ids=lambda act: act.__name__)
@pytest.mark.parametrize("hook", ["on_train_begin", "on_epoch_begin", "on_epoch_end"])
@pytest.mark.slow_where("*xla_loop", "*begin-*", "*-remakes*", "*plain")
def test_epoch_hooks_find_the_model_as_in_keras_fit(keras, hook, act, plan):
    if act is freezes_and_trains and plan != "plain" and keras.__name__ == "tf_keras":
        pytest.skip("Keras fit goes on with what train_on_batch traced, where nothing is frozen")
    assert_equal_runs(run(keras, act, hook, PLANS[plan]), run(keras, act, hook, None))


@pytest.mark.parametrize("act", ACTIONS, ids=lambda act: act.__name__)
@pytest.mark.parametrize("hook", ["on_train_batch_end", "on_test_end"])
@pytest.mark.slow_where("*remakes", "*evaluates", "*on_test_end*", "*-freezes")
def test_batch_and_test_hooks_find_the_model_as_in_keras_fit(keras, hook, act):
    if hook == "on_test_end" and act is fits:
        pytest.skip("Keras' own evaluation cannot go on after a fit inside it")
    assert_equal_runs(run(keras, act, hook, PLAIN_FIT), run(keras, act, hook, None))


def test_a_fit_with_an_evaluation_may_run_in_an_evaluation(keras):
    def fits_once(logs=None):
        if not calls:
            calls.append(None)
            model.fit(other_data(), verbose=0, validation_data=other_data())

    histories = []
    for plan in ("four", None):
        calls, model = [], model_of(keras)
        callback = keras.callbacks.LambdaCallback()
        callback.on_test_begin = fits_once
        histories.append(fitted(model, plan, epochs=2, callbacks=[callback]))
    assert_same_history(*histories, rtol=1e-4)


def test_an_evaluation_that_raises_does_not_affect_the_next_one(keras):
    def numbers():
        yield from other_data()
        if not failed:
            failed.append(None)
            raise ValueError("planted")

    failed, batches, model = [], [], model_of(keras)
    given = tf.data.Dataset.from_generator(numbers, output_signature=other_data().element_spec)
    given = given.repeat(4).apply(tf.data.experimental.assert_cardinality(12))
    with pytest.raises(tf.errors.OpError, match="planted"):
        fitted(model, validation_data=given)
    callback = keras.callbacks.Callback()
    callback.on_test_batch_end = lambda batch, logs=None: batches.append(batch)
    model.fit(data(), verbose=0, validation_data=given, callbacks=[callback])
    assert batches == list(range(12))


def saved_and_loaded(keras, model, folder):
    model.save(folder / "model.keras")
    return keras.models.load_model(folder / "model.keras")


COPIES = {
    "copied": lambda keras, model, folder: copy.copy(model),
    "copied_deeply": lambda keras, model, folder: copy.deepcopy(model),
    "cloned": lambda keras, model, folder: keras.models.clone_model(model),
    "pickled": lambda keras, model, folder: pickle.loads(pickle.dumps(model)),
    "saved": saved_and_loaded,
}


@pytest.mark.parametrize("kind", COPIES)
def test_copies_of_the_model_have_keras_own_methods(keras, kind, tmp_path):
    copies = []

    def makes_a_copy(epoch, logs=None):
        made = COPIES[kind](keras, model, tmp_path)
        made.compile("sgd", "mse")
        copies.append((made, [weights.copy() for weights in made.get_weights()]))
        made.evaluate(other_data(), verbose=0)
        made.train_on_batch(*batch())

    model, plain = model_of(keras), model_of(keras)
    callback = keras.callbacks.LambdaCallback(on_epoch_end=makes_a_copy)
    expected = fitted(plain, None, epochs=2)
    before = dict(vars(model))
    found = fitted(model, epochs=2, callbacks=[callback])
    assert_same_history(found, expected, rtol=1e-4)
    assert vars(model).keys() - before.keys() <= vars(plain).keys()
    for made, weights in copies:
        assert not {"evaluate", "test_on_batch", "make_train_function"} & vars(made).keys()
        trained = zip(made.get_weights(), weights, strict=True)
        assert not all(np.array_equal(one, other) for one, other in trained)


class WithOwnMethods:
    """Methods whose code names variables that do not belong to the model."""

    def evaluate(self, *args, **kwargs):
        OTHERS_COUNT.assign_add(1)
        return super().evaluate(*args, **kwargs)


OTHERS_COUNT = tf.Variable(0)


def test_replaced_methods_are_no_state_of_the_model(keras):
    class Model(WithOwnMethods, keras.Model):
        def call(self, inputs):
            return self.dense(inputs)

    model = Model()
    model.dense = keras.layers.Dense(1)
    model.compile("sgd", "mse")
    seen = []

    def look(epoch, logs=None):
        seen.append(variables.named_variables({"model": model}).keys())

    callback = keras.callbacks.LambdaCallback(on_epoch_end=look)
    for plan in (None, "four"):
        fitted(model, plan, epochs=2, callbacks=[callback])
    assert len(seen) == 4
    assert all(each == seen[0] for each in seen)
    assert int(OTHERS_COUNT) >= 4


@pytest.mark.parametrize("plan", ["plain", "four"])
def test_nothing_is_left_behind(keras, plan):
    classes = [importlib.import_module(name).Model for name in ("keras", "tf_keras")]
    before = [dict(vars(cls)) for cls in classes]
    strategy = dict(vars(tf.distribute.get_strategy()))
    with pytest.raises(ZeroDivisionError):
        run(keras, lambda model, seen: 1 / 0, "on_epoch_end", PLANS[plan])
    run(keras, fits, "on_epoch_end", PLANS[plan])
    assert [dict(vars(cls)) for cls in classes] == before
    assert dict(vars(tf.distribute.get_strategy())) == strategy


def own_arguments(model, own, x=None, steps=None, **_):
    return own(x, steps=steps, verbose=0, return_dict=True)


def others_before(model, own, *args, **kwargs):
    own(other_data().repeat(), steps=3, verbose=0)
    return own(*args, **kwargs)


def own_loop(model, own, *args, **kwargs):
    model.make_test_function()
    iterator = iter(other_data())
    for _ in range(3):
        model.test_function(iterator)
    return own(*args, **kwargs)


@pytest.mark.parametrize("evaluates", [own_arguments, others_before, own_loop])
def test_a_users_evaluate_may_call_keras_evaluate_in_its_own_way(keras, evaluates):
    class Model(keras.Sequential):
        def evaluate(self, *args, **kwargs):
            return evaluates(self, super().evaluate, *args, **kwargs)

    def trained(plan):
        keras.utils.set_random_seed(3)
        model = Model([keras.layers.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        given = {"validation_data": data().repeat(), "validation_steps": 3}
        return fitted(model, plan, epochs=2, **given)

    assert_same_history(trained("four"), trained(None), rtol=1e-4)


@pytest.mark.parametrize("stays", [True, False])
def test_a_method_that_a_callback_replaces_is_kept(keras, stays):
    model = model_of(keras)

    def begin(epoch, logs=None):
        if epoch == 1:
            model.evaluate = functools.partial(model.evaluate)

    def end(logs=None):
        if not stays:
            del model.evaluate

    callback = keras.callbacks.LambdaCallback(on_epoch_begin=begin, on_train_end=end)
    fitted(model, epochs=3, callbacks=[callback])
    assert ("evaluate" in vars(model)) is stays


def test_a_model_compiled_in_its_last_epoch_is_retraced_for_the_next_evaluation(keras):
    model = model_of(keras)
    callback = keras.callbacks.LambdaCallback(
        on_train_end=lambda logs=None: model.compile("sgd", "mse", metrics=["mse"])
    )
    with interception.intercepting_fit(session_with(PLANS["four"]).fit):
        model.fit(data(), verbose=0, validation_data=other_data(), callbacks=[callback])
        history = model.fit(data(), verbose=0, validation_data=other_data())
    assert "val_mse" in history.history


def test_the_initial_weights_of_a_training_are_released(keras):
    session, model = session_with(PLANS["four"]), model_of(keras)
    with interception.intercepting_fit(session.fit):
        model.fit(data(), epochs=2, verbose=0, validation_data=other_data())
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, MemorySnapshot)]
