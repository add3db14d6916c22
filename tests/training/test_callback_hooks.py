"""A plan is tried, proven and traced on the model that callbacks have made when training begins.

Callbacks that act on single batches get each batch, however late they are given such a hook.
"""

import model_cases
import numpy as np
import pytest
import tensorflow as tf

from tfx_perf.core import interception
from tfx_perf.training.fit import callback_hooks
from tfx_perf.training.loop import eligibility, turns
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.tuning import choosing
from tfx_perf.training.tuning.choice import PlanChoice, plain

pytestmark = [pytest.mark.one_case, pytest.mark.usefixtures("no_flops")]

STEPS = 24
PLAN = TrainingPlan(steps_per_execution=6, fused_update=True)


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    monkeypatch.setattr(turns, "BLOCK_SECONDS", 0.01)


def model_of(keras):
    class Scaled(keras.layers.Layer):
        factor = 1.0

        def call(self, x):
            return x * self.factor

    keras.utils.set_random_seed(3)
    layers = [keras.Input((4,)), keras.layers.Dense(3), Scaled(), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.Adam(0.05), "mse")
    return model


def data():
    random = np.random.RandomState(0)
    x, y = random.rand(STEPS * 4, 4).astype("float32"), random.rand(STEPS * 4, 1).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(4)


def freeze(model):
    model.layers[0].trainable = False


def scale(model):
    model.layers[1].factor = 0.1


def change_rate(model):
    model.optimizer.learning_rate = 0.001


CHANGES = {"freeze": freeze, "scale": scale, "change_rate": change_rate}


def callback_of(keras, change, where):
    seen = []

    class Own(keras.callbacks.Callback):
        def set_model(self, model):
            super().set_model(model)
            self._do("set_model")

        def on_train_begin(self, logs=None):
            self._do("on_train_begin")

        def on_epoch_begin(self, epoch, logs=None):
            self._do("on_epoch_begin", epoch)

        def on_epoch_end(self, epoch, logs=None):
            seen.append(("on_epoch_end", epoch))

        def _do(self, hook, epoch=0):
            seen.append((hook, epoch))
            if hook == where and epoch == 0:
                CHANGES[change](self.model)

    own = Own()
    own.seen = seen
    return own


def session_that_tries():
    settings = model_cases.settings_that_try(steps_per_execution=[6])
    session = TrainingSession(settings)

    def choose(call, loop):
        tried = choosing.choose_and_restore(call, loop, settings=settings)
        plan = tried.plan if len(tried.trials) < 2 else PLAN  # the fastest on this machine
        return PlanChoice(plan=plan, plan_reason=tried.plan_reason, trials=tried.trials)

    session._choose = choose
    return session


def by_both(keras, fitted, session):
    """Has Keras train a model and a session another; returns both models and what they gave."""
    plain, model = model_of(keras), model_of(keras)
    expected = fitted(plain)
    with interception.intercepting_fit(session.fit):
        found = fitted(model)
    for weights, own in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(weights, own, atol=1e-5)
    return (model, found), (plain, expected)


@pytest.mark.parametrize("where", ["before fit", "set_model", "on_train_begin", "on_epoch_begin"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_before_the_first_step_is_trained_as_by_keras(keras, change, where):
    callbacks = []

    def fitted(model):
        if where == "before fit":
            CHANGES[change](model)
        callbacks.append(callback_of(keras, change, where))
        history = model.fit(data(), epochs=2, verbose=0, callbacks=callbacks[-1:]).history
        return history["loss"], [layer.trainable for layer in model.layers]

    session = session_that_tries()
    (_, found), (_, expected) = by_both(keras, fitted, session)
    assert session.record.plan == PLAN
    assert session.record.trials
    assert callbacks[1].seen == callbacks[0].seen
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    assert found[1] == expected[1]


def test_hooks_assigned_to_callbacks_are_restored(keras):
    told = []
    given = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: told.append(epoch))
    own, session = vars(given)["on_epoch_begin"], session_that_tries()
    with interception.intercepting_fit(session.fit):
        model_of(keras).fit(data(), epochs=3, verbose=0, callbacks=[given])
    assert told == [0, 1, 2]
    assert vars(given)["on_epoch_begin"] is own


def test_an_error_of_a_callback_is_the_users_and_leaves_no_hook_behind(keras):
    class Fails(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            raise ValueError("mine")

    callback, session = Fails(), session_that_tries()
    with interception.intercepting_fit(session.fit), pytest.raises(ValueError, match="mine"):
        model_of(keras).fit(data(), verbose=0, callbacks=[callback])
    assert "on_train_begin" not in vars(callback)


def test_callbacks_of_keras_change_nothing_before_the_first_step(keras):
    made = keras.callbacks
    own = [made.EarlyStopping(), made.LearningRateScheduler(lambda epoch, rate: rate)]
    assert not callback_hooks.may_change_the_model(own, made)
    assert callback_hooks.may_change_the_model([callback_of(keras, "freeze", "")], made)


def given_if_it_may(call, loop):
    reason = eligibility.obstacle(call, loop)
    return plain(reason) if reason else PlanChoice(plan=PLAN, plan_reason="given")


def put_late(keras, where, epoch, hook, act):
    """Returns a callback that is given a batch hook while `fit` runs."""

    class Late(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            self._put("on_train_begin", epoch)

        def on_epoch_begin(self, index, logs=None):
            self._put("on_epoch_begin", index)

        def _put(self, name, index):
            if name == where and index == epoch:
                setattr(self, hook, lambda batch, logs=None: act(self, batch, logs))

    return Late()


@pytest.mark.each_choice
@pytest.mark.parametrize("hook", ["on_train_batch_end", "on_test_batch_end"])
@pytest.mark.parametrize(
    "when", [("on_train_begin", 0), ("on_epoch_begin", 0), ("on_epoch_begin", 1)]
)
@pytest.mark.parametrize("is_tried", [False, True])
@pytest.mark.parametrize("verbose", [1, 2])  # with 2, tf_keras calls no hook that is added late
def test_a_hook_that_is_added_late_gets_each_batch(keras, hook, when, is_tried, verbose):
    where, epoch = when

    def fitted(model):
        seen = []

        def act(callback, batch, logs):
            seen.append((batch, float(logs["loss"])))
            callback.model.optimizer.learning_rate = 0.05 / (1 + len(seen))

        callback = put_late(keras, where, epoch, hook, act)
        given = {"epochs": 3, "validation_data": data(), "verbose": verbose}
        history = model.fit(data(), callbacks=[callback], **given).history
        return seen, history

    session = session_that_tries()
    if not is_tried:
        session._choose = given_if_it_may
    (_, (found, history)), (_, (expected, own_history)) = by_both(keras, fitted, session)
    assert len(found) >= STEPS or (keras.__name__, verbose) == ("tf_keras", 2)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    np.testing.assert_allclose(history["loss"], own_history["loss"], rtol=1e-4)
    if epoch and found:
        assert any("as compiled from epoch" in note for note in session.record.notes)


@pytest.mark.each_choice
@pytest.mark.parametrize(
    "make",
    [
        lambda made, folder: made.TensorBoard(folder, update_freq=1),
        lambda made, folder: made.TensorBoard(folder, update_freq="batch"),
        lambda made, folder: made.TensorBoard(folder, profile_batch=(5, 7)),
        lambda made, folder: made.TerminateOnNaN(),
    ],
)
def test_callbacks_at_certain_batches_keep_keras_fit_and_are_named(keras, make, tmp_path):
    """`test_eligibility` checks that Keras' `fit` then trains."""
    callback = make(keras.callbacks, str(tmp_path))
    call = interception.capture_fit(
        lambda: model_of(keras).fit(data(), verbose=0, callbacks=[callback])
    )
    assert type(callback).__name__ in eligibility.obstacle(call, FitLoop(call))


@pytest.mark.usefixtures("saves_at_once")
def test_a_resumed_training_is_traced_after_callbacks_begin_and_only_once(keras, tmp_path):
    class Killed(BaseException):
        pass

    def fitted(model, *, dies=False):
        class Own(keras.callbacks.Callback):
            def on_train_begin(self, logs=None):
                freeze(self.model)

            def on_epoch_end(self, epoch, logs=None):
                if dies and epoch == 1:
                    raise Killed

        model.fit(data(), epochs=4, verbose=0, callbacks=[Own()])

    plain = model_of(keras)
    fitted(plain)
    training = {"checkpoint_folder": str(tmp_path), "checkpoint_every_steps": 12}
    for dies in (True, False):
        model = model_of(keras)
        session = model_cases.session_with(PLAN, training=training)
        try:
            with interception.intercepting_fit(session.fit):
                fitted(model, dies=dies)
        except Killed:
            continue
    assert session.record.resumed_step
    for weights, own in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(weights, own, atol=1e-5)


def ducks(keras):
    class Duck:
        __slots__ = ("inner",)

        def __init__(self):
            self.inner = keras.callbacks.Callback()

        def __getattr__(self, name):
            return getattr(self.inner, name)

    return Duck()


def with_properties(keras):
    class Prop(keras.callbacks.Callback):
        told = ()

        @property
        def on_epoch_begin(self):
            return lambda epoch, logs=None: vars(self).update(told=(*self.told, epoch))

    return Prop()


def that_look_at_the_history(keras):
    class Looks(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.is_loud = self.params["verbose"] == 1 or keras.__name__ == "keras"

        def on_epoch_begin(self, epoch, logs=None):
            self.best = min(self.model.history.history.get("loss", []), default=None)

    return Looks()


@pytest.mark.parametrize("make", [ducks, with_properties, that_look_at_the_history])
def test_callbacks_of_every_kind_are_called_once_as_by_keras(keras, make):
    callback, session = make(keras), session_that_tries()
    with interception.intercepting_fit(session.fit):
        model_of(keras).fit(data(), epochs=2, callbacks=[callback])
    assert session.record.plan == PLAN
    if make is with_properties:
        assert callback.told == (0, 1)
    if make is that_look_at_the_history:
        assert callback.is_loud


def test_the_epoch_that_keras_backup_resumes_is_not_skipped(keras, tmp_path):
    callbacks = [callback_of(keras, "freeze", ""), keras.callbacks.BackupAndRestore(str(tmp_path))]
    session = session_that_tries()
    with interception.intercepting_fit(session.fit):
        found = model_of(keras).fit(data(), epochs=3, verbose=0, callbacks=callbacks)
    assert found.epoch == [0, 1, 2]
    assert "BackupAndRestore" in session.record.plan_reason


def test_a_model_recompiled_in_fit_is_evaluated_on_all_data(keras):
    def fitted(model):
        class Compiles(keras.callbacks.Callback):
            def on_epoch_begin(self, epoch, logs=None):
                if epoch == 1:
                    self.model.compile(keras.optimizers.Adam(0.002), "mae", metrics=["mse"])
                    self.model.make_train_function()

            def on_epoch_end(self, epoch, logs=None):
                if epoch == 2:
                    self.model.optimizer = keras.optimizers.SGD(0.1)

        given = {"epochs": 4, "validation_data": data(), "verbose": 0}
        return model.fit(data(), callbacks=[Compiles()], **given)

    session = session_that_tries()
    (_, found), (_, expected) = by_both(keras, fitted, session)
    assert session.record.plan == PLAN
    assert "val_mse" in found.history
    model_cases.assert_same_history(found, expected, rtol=1e-4)
