"""Keras calls in other threads use Keras' own functions and take nothing from the running `fit`."""

import threading
import time
from concurrent import futures

import model_cases
import numpy as np
import pytest
import tensorflow as tf

import tfx_perf
from tfx_perf.core import interception
from tfx_perf.training.loop import turns
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.tuning import choosing
from tfx_perf.training.tuning.choice import PlanChoice

pytestmark = [pytest.mark.each_choice, pytest.mark.usefixtures("no_flops")]

STEPS, EPOCHS = 40, 3
X, Y = np.random.RandomState(0).rand(8, 4).astype("float32"), np.ones((8, 1), "float32")


def model_of(keras, seed=3):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse", metrics=["mae"])
    return model


def data(seed=0):
    random = np.random.RandomState(seed)
    x, y = random.rand(STEPS * 8, 4).astype("float32"), random.rand(STEPS * 8, 1).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(8)


def session_with(steps_per_execution=8, folder=None):
    training = {"checkpoint_folder": str(folder), "checkpoint_every_steps": 20} if folder else {}
    return model_cases.session_with(
        TrainingPlan(steps_per_execution=steps_per_execution), training=training
    )


class Meanwhile:
    """Calls a function repeatedly in a thread; slows `fit` so that a call surely intervenes."""

    def __init__(self, keras, call):
        self.count, self.error, self._thread = 0, None, None
        self._call, self._is_over = call, threading.Event()
        meanwhile = self

        class Waiting(keras.callbacks.Callback):
            def on_train_begin(self, logs=None):  # otherwise another `fit` might be the first
                meanwhile.begin()

            def on_epoch_begin(self, epoch, logs=None):
                meanwhile.wait_for_another()

            def on_epoch_end(self, epoch, logs=None):
                meanwhile.wait_for_another()

        self.callback = Waiting()

    def wait_for_another(self):
        before = self.count
        while self.count < before + 2 and self.error is None:
            time.sleep(0.001)

    def _run(self):
        try:
            while not self._is_over.is_set():
                self._call()
                self.count += 1
        except BaseException as error:
            self.error = error

    def begin(self):
        if self._thread is None:
            self._thread = threading.Thread(target=self._run)
            self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()
        assert self.error is None, self.error


CALLS = {
    "another_predicts": lambda keras, model, other: other.predict(X, verbose=0),
    "another_evaluates": lambda keras, model, other: other.evaluate(X, Y, verbose=0),
    "another_trains": lambda keras, model, other: other.fit(X, Y, batch_size=2, verbose=0),
    "it_predicts_a_batch": lambda keras, model, other: model.predict_on_batch(X),
}


@pytest.mark.parametrize("has_folder", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_every_step_is_made_whatever_another_thread_calls(keras, name, has_folder, tmp_path):
    plain, model, other = model_of(keras), model_of(keras), model_of(keras, seed=9)
    expected = plain.fit(data(), epochs=EPOCHS, validation_data=data(1), verbose=0)
    session = session_with(folder=tmp_path if has_folder else None)
    meanwhile = Meanwhile(keras, lambda: CALLS[name](keras, model, other))
    with interception.intercepting_fit(session.fit), meanwhile:
        found = model.fit(
            data(),
            epochs=EPOCHS,
            validation_data=data(1),
            verbose=0,
            callbacks=[meanwhile.callback],
        )
    assert int(model.optimizer.iterations.numpy()) == STEPS * EPOCHS
    record = session.record
    assert record.train_step_count == STEPS * EPOCHS
    assert record.plan.steps_per_execution == 8
    for weights, own in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(weights, own, rtol=1e-5)
    # Metrics belong to the model, and an evaluation in another thread resets them.
    for loss, own in zip(found.history["val_loss"], expected.history["val_loss"], strict=True):
        assert loss == pytest.approx(own, rel=1e-5)


def test_another_thread_that_trains_the_model_adds_its_own_steps(keras, monkeypatch):
    model = model_of(keras)
    count = model.optimizer.iterations
    if not isinstance(count, tf.Variable):  # Keras 3 reads and assigns, so two threads may lose one
        add = lambda variable, value: variable._value.assign_add(value)  # noqa: E731
        monkeypatch.setattr(type(count), "assign_add", add)
    session = session_with()
    meanwhile = Meanwhile(keras, lambda: model.train_on_batch(X, Y))
    with interception.intercepting_fit(session.fit), meanwhile:
        model.fit(data(), epochs=EPOCHS, verbose=0, callbacks=[meanwhile.callback])
    assert int(model.optimizer.iterations.numpy()) == STEPS * EPOCHS + meanwhile.count
    assert session.record.train_step_count == STEPS * EPOCHS


@pytest.mark.parametrize("which", ["the_model", "the_model_by_its_class", "another_model"])
def test_a_thread_that_trains_while_plans_are_tried_loses_no_step(keras, which, monkeypatch):
    monkeypatch.setattr(turns, "BLOCK_SECONDS", 0.01)
    settings = model_cases.settings_that_try(steps_per_execution=[8])
    model, other, tried = model_of(keras), model_of(keras), []
    trained = other if which == "another_model" else model
    trained.train_on_batch(X, Y)  # creates all its variables

    def train():
        if which == "the_model_by_its_class":
            keras.Model.train_on_batch(trained, X, Y)
        else:
            trained.train_on_batch(X, Y)

    meanwhile = Meanwhile(keras, train)
    session = TrainingSession(settings)

    def choose(call, loop):
        with meanwhile:
            meanwhile.begin()
            meanwhile.wait_for_another()
            tried.append(choosing.choose_and_restore(call, loop, settings=settings))
            meanwhile.wait_for_another()
        return PlanChoice(plan=TrainingPlan(steps_per_execution=8), plan_reason="given")

    session._choose = choose
    with interception.intercepting_fit(session.fit):
        model.fit(data(), epochs=EPOCHS, verbose=0)
    assert tried[0].trials
    own_steps = STEPS * EPOCHS if trained is model else 0
    assert int(trained.optimizer.iterations.numpy()) == 1 + own_steps + meanwhile.count


def test_two_fits_in_two_threads_both_train_fully_and_the_second_is_mentioned(keras):
    models = [model_of(keras, seed) for seed in (1, 2)]
    owns = [model_of(keras, seed) for seed in (1, 2)]
    expected = [
        own.fit(data(seed), epochs=EPOCHS, validation_data=data(5), verbose=0).history
        for seed, own in enumerate(owns)
    ]
    session = session_with()
    barrier = threading.Barrier(2, timeout=60)

    class Both(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            barrier.wait()

    def train(seed):
        given = {"epochs": EPOCHS, "validation_data": data(5), "verbose": 0}
        return models[seed].fit(data(seed), callbacks=[Both()], **given).history

    with interception.intercepting_fit(session.fit), futures.ThreadPoolExecutor(2) as pool:
        found = list(pool.map(train, range(2)))
    for model, history, own in zip(models, found, expected, strict=True):
        assert int(model.optimizer.iterations.numpy()) == STEPS * EPOCHS
        assert history["loss"] == pytest.approx(own["loss"], rel=1e-5)
        assert history["val_loss"] == pytest.approx(own["val_loss"], rel=1e-5)
    assert any("in other threads" in note for note in session.record.notes)


def test_two_scripts_in_two_threads_restore_fit(keras):
    before = keras.Model.fit
    begun = threading.Barrier(2, timeout=60)

    def train(seed):
        model = model_of(keras, seed)
        with tfx_perf.optimized({"training": {"tuning_seconds": 0}}) as run:
            begun.wait()
            model.fit(data(seed), epochs=EPOCHS, verbose=0)
            begun.wait()
        return int(model.optimizer.iterations.numpy()), run.record

    with futures.ThreadPoolExecutor(2) as pool:
        found = list(pool.map(train, range(2)))
    assert [steps for steps, _ in found] == [STEPS * EPOCHS] * 2
    assert keras.Model.fit is before
