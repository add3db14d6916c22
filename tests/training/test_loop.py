"""The loop's results equal those of Keras' `fit`, whatever the plan."""

import contextlib
import threading

import model_cases
import numeric_models
import numpy as np
import pytest
import tensorflow as tf
from model_cases import Snapshot, captured, compare

from tfx_perf.tf_internals import autograph
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan

pytestmark = pytest.mark.one_case

PLANS = [TrainingPlan(steps_per_execution=steps) for steps in (1, 3, 7, 50)]
XLA = TrainingPlan(steps_per_execution=7, xla=True)


@pytest.fixture(autouse=True)
def all_traces_are_quick(request):
    """Has `make test` train as OptimizedTrainer does, `make test-slow` with tf_keras converted."""
    is_slow = request.node.get_closest_marker("slow")
    with contextlib.nullcontext() if is_slow else autograph.libraries_unconverted():
        yield


@pytest.mark.parametrize("name", ["dense", "subclass", "custom_train_step"])
def test_every_plan_gives_the_results_of_keras_fit(keras, name):
    """Models of more kinds are trained in `test_numerics`."""
    # With other weights each time, XLA's rounding would sometimes flip a ReLU.
    keras.utils.set_random_seed(3)
    model, data = getattr(model_cases, name)(keras), model_cases.regression()
    call = captured(model, data, validation_data=data.take(4))
    compare(call, [*PLANS, *([] if name == "custom_train_step" else [XLA])], step_count=20)


def test_the_users_steps_per_execution_are_kept(keras):
    model = model_cases.dense(keras)
    model.compile(optimizer="sgd", loss="mse", steps_per_execution=5)
    data = model_cases.regression()
    compare(captured(model, data, validation_data=data), PLANS[1:3], step_count=20)
    assert FitLoop(captured(model, data)).users_steps_per_execution == 5


def test_keras_own_callbacks_work(keras, tmp_path):
    rates = []
    callbacks = [
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.01 / (epoch + 1)),
        keras.callbacks.EarlyStopping(monitor="val_loss", patience=0, min_delta=10.0),
        keras.callbacks.ModelCheckpoint(str(tmp_path / "best.weights.h5"), save_weights_only=True),
        keras.callbacks.TensorBoard(str(tmp_path / "logs"), update_freq="epoch"),
        keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: rates.append((epoch, sorted(logs)))
        ),
    ]
    data = model_cases.regression()
    call = captured(
        model_cases.dense(keras), data, validation_data=data, epochs=9, callbacks=callbacks
    )
    compare(call, PLANS[2:3], step_count=20)  # stopped after two epochs
    assert rates[:2] == rates[2:]
    assert len(rates) == 4
    assert (tmp_path / "best.weights.h5").exists()
    assert list((tmp_path / "logs" / "validation").glob("events*"))


@pytest.mark.parametrize("plan", [PLAIN_FIT, PLANS[2]])
def test_the_model_is_left_as_keras_leaves_it(keras, plan, tmp_path):
    model = model_cases.dense(keras)
    data = model_cases.regression()
    call = captured(model, data, validation_data=data)
    loop = FitLoop(call)
    history, _ = loop.fit(plan)
    assert model.history is history
    train, test = loop.functions.keras
    assert model.train_function is train.wrapped
    assert model.test_function is test
    assert FitLoop(call).users_steps_per_execution == 1
    loss = model.evaluate(data, verbose=0)[0]
    assert loss == pytest.approx(history.history["val_loss"][-1], rel=1e-5)
    assert model.fit(data, verbose=0).history["loss"][0] < history.history["loss"][0]
    predicted = model.predict(data, verbose=0)
    model.save(str(tmp_path / "model.keras"))
    loaded = keras.models.load_model(str(tmp_path / "model.keras"))
    np.testing.assert_allclose(loaded.predict(data, verbose=0), predicted, rtol=1e-6)


def test_a_mirrored_model_on_one_device(keras):
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model, data = numeric_models.batch_norm(keras)
    call = captured(model, data, validation_data=data.take(4), epochs=1)
    compare(call, [PLAIN_FIT, PLANS[2], XLA], step_count=20)


def test_an_optimizer_that_an_own_step_does_not_use_gets_no_slots(keras):
    class OwnOptimizer(keras.Model):
        def compile(self, own, **arguments):
            super().compile(**arguments)  # with Keras' default optimizer
            self.own = own

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
            variables = self.trainable_variables
            gradients = tape.gradient(loss, variables)
            self.own.apply_gradients(zip(gradients, variables, strict=True))
            return {"loss": loss}

    def count(optimizer):
        kept = optimizer.variables
        return len(kept() if callable(kept) else kept)

    inputs = keras.Input((4,))
    model = OwnOptimizer(inputs, keras.layers.Dense(1)(inputs))
    model.compile(keras.optimizers.Adam(), loss="mse")
    call = captured(model, model_cases.regression())
    unused, weights = count(model.optimizer), Snapshot(model).values
    FitLoop(call).fit(PLANS[2])
    assert count(model.optimizer) == unused <= 2  # the step's number, the learning rate
    assert count(model.own) >= 4
    assert not np.array_equal(weights[0], Snapshot(model).values[0])


@pytest.mark.parametrize("keras", ["keras"], indirect=True)
def test_an_evaluation_without_data_ends_as_in_plain_fit(keras):
    """Keras 3 asks until the data end; tf_keras raises, under a plan as without one."""
    data = model_cases.regression()
    call = captured(model_cases.dense(keras), data, validation_data=data.take(0))
    compare(call, PLANS[2:3], step_count=20)


@pytest.mark.parametrize("plan", [PLAIN_FIT, TrainingPlan(steps_per_execution=3)], ids=str)
def test_a_training_does_not_wait_for_its_iterators_to_end(keras, plan, monkeypatch):
    started = []
    monkeypatch.setattr(
        threading.Thread, "start",
        lambda self, start=threading.Thread.start: (started.append(self.name), start(self)),
    )  # fmt: skip
    call = captured(
        model_cases.dense(keras), model_cases.regression(), epochs=2,
        validation_data=model_cases.regression().take(2),
    )  # fmt: skip
    FitLoop(call).fit(plan)
    # At least those of an epoch and of the validation.
    assert started.count("end of an iterator") >= 2
