"""Users' callbacks, and their changes to a model, in a training that is interrupted and resumed.

State that differs between processes is either resumed or named in the note, which is compared with
the `told` of both. A second module of the same code represents a second process, and
the training resumes at its end.
"""

import contextlib
import types

import model_cases
import numpy as np
import pytest
import tensorflow as tf
from model_cases import (
    Snapshot,
    assert_same,
    assert_same_history,
    captured,
    session_with,
    without_autotune,
)

from tfx_perf.config import PerfConfig
from tfx_perf.core import interception
from tfx_perf.training.recovery import plain_data
from tfx_perf.training.recovery.callback_state import CallbackSnapshot, CallbackState
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.speedups.plan import TrainingPlan

pytestmark = [pytest.mark.one_case, pytest.mark.usefixtures("no_flops", "saves_at_once")]

EPOCHS = 4


def model_of(keras, *, rate=0.01):
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((4,)), layers.Dense(8, activation="relu", name="hidden"), layers.Dense(1)]
    )
    model.compile(optimizer=keras.optimizers.SGD(rate, momentum=0.9), loss="mse")
    return model


def shuffled():
    return model_cases.regression().unbatch().shuffle(100, seed=4).batch(model_cases.BATCH_SIZE)


def data(stages=shuffled):
    return without_autotune(stages()).repeat()


def fit(keras, callbacks, *, folder=None, ends_at=None, stages=shuffled, session=None):
    """Trains, by Keras' `fit` if there is no folder, and up to an epoch if one is given."""
    keras.utils.set_random_seed(3)
    model = model_of(keras)
    if ends_at is not None:
        callbacks = [*callbacks, broken_off_at(keras, ends_at)]
    watched = contextlib.nullcontext()
    if folder is not None:
        training = {"checkpoint_every_steps": 4, "checkpoint_folder": str(folder)}
        session = session or session_with(TrainingPlan(steps_per_execution=4), training=training)
        watched = interception.intercepting_fit(session.fit)
    with watched:
        history = model.fit(
            data(stages),
            steps_per_epoch=model_cases.BATCHES,
            epochs=EPOCHS,
            callbacks=callbacks,
            verbose=0,
        )
    return model, history, session


def broken_off_at(keras, epoch):
    def end(at, logs=None):
        if at == epoch:
            raise InterruptedError

    return keras.callbacks.LambdaCallback(on_epoch_begin=end)


def resumed(keras, make, folder, *, stages=shuffled):
    """Returns the results of Keras' `fit` and of a training that is interrupted and run again."""
    expected = fit(keras, make(keras), stages=stages)
    with pytest.raises(InterruptedError):
        fit(keras, make(keras), folder=folder, ends_at=2, stages=stages)
    return expected, fit(keras, make(keras), folder=folder, stages=stages)


def test_a_callback_added_since_sees_single_batches(keras, tmp_path):
    with pytest.raises(InterruptedError):
        fit(keras, [], folder=tmp_path, ends_at=2)
    batches = []

    class Own(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            batches.append(batch)

    training = {"checkpoint_folder": str(tmp_path), "tuning_seconds": 0}
    session = TrainingSession(PerfConfig.from_dict({"training": training}))
    fit(keras, [Own()], folder=tmp_path, session=session)
    assert session.record.resumed_step > model_cases.BATCHES
    assert batches[-2 * model_cases.BATCHES :] == 2 * [*range(model_cases.BATCHES)]
    assert session.record.plan.is_plain_fit
    assert "Own acts on every batch" in session.record.plan_reason


def averages(keras):
    class Averages(keras.callbacks.Callback):
        """Creates its variables when it needs them."""

        average = None

        def on_epoch_end(self, epoch, logs=None):
            if self.average is None:
                self.average = [tf.Variable(np.array(w)) for w in self.model.weights]
            for average, weight in zip(self.average, self.model.weights, strict=True):
                average.assign(0.9 * average + 0.1 * tf.convert_to_tensor(weight))

        def on_train_end(self, logs=None):
            for average, weight in zip(self.average, self.model.weights, strict=True):
                weight.assign(average)

    return [Averages()]


def more_patient(keras):
    class MorePatient(keras.callbacks.EarlyStopping):
        """Changes the arguments of its constructor."""

        def on_epoch_end(self, epoch, logs=None):
            self.patience += 1
            super().on_epoch_end(epoch, logs)

    return [MorePatient("loss", patience=0, min_delta=100.0)]


def freezes(keras):
    def freeze(epoch, logs=None):
        if epoch == 1:
            callback.model.get_layer("hidden").trainable = False

    callback = keras.callbacks.LambdaCallback(on_epoch_begin=freeze)
    return [callback]


@pytest.mark.parametrize("make", [averages, more_patient, freezes])
def test_it_continues_as_under_keras_fit(keras, make, tmp_path):
    (model, expected, _), (found, history, session) = resumed(keras, make, tmp_path)
    assert session.record.resumed_step > model_cases.BATCHES
    assert_same(Snapshot(found), Snapshot(model))
    assert_same_history(history, expected)


def makes_variables_of_the_model(keras):
    def make(epoch, logs=None):
        callback.model.average = [tf.Variable(np.array(w)) for w in callback.model.weights]

    callback = keras.callbacks.LambdaCallback(on_epoch_end=make)
    return [callback]


@pytest.mark.slow
def test_a_training_that_starts_over_remembers_nothing(keras, tmp_path):
    """The resumed model has other variables than the saved one."""
    file = tmp_path / "log.csv"

    def make(keras):
        return [*makes_variables_of_the_model(keras), keras.callbacks.CSVLogger(str(file))]

    (model, expected, _), (found, history, session) = resumed(keras, make, tmp_path / "saved")
    assert session.record.resumed_step is None
    assert "started from scratch" in session.record.notes[0]
    assert_same(Snapshot(found), Snapshot(model))
    assert_same_history(history, expected)
    assert len(file.read_text().splitlines()) == 1 + EPOCHS


@pytest.mark.parametrize("what", ["a file", "its values"])
def test_logs_that_cannot_be_restored_do_not_end_a_training(keras, what, tmp_path, monkeypatch):
    with pytest.raises(InterruptedError):
        fit(keras, [], folder=tmp_path, ends_at=2)
    if what == "a file":
        monkeypatch.setattr(plain_data, "loaded", lambda data, objects=(): 1 / 0)
    else:
        of_a_graph = plain_data.Packed(b'{"lost": [1]}', b"[]", is_whole=False)
        captured = CallbackSnapshot(history=of_a_graph, callbacks=[], logs=of_a_graph)
        monkeypatch.setattr(CallbackState, "read", lambda folder: captured)
    _, history, session = fit(keras, [], folder=tmp_path)
    assert session.record.resumed_step is not None
    assert 0 < len(history.history["loss"]) < EPOCHS
    notes = "".join(session.record.notes)
    assert "History is not what it was" in notes
    assert "what the last call returned is not what it was" in notes


def test_a_cache_in_files_stays_complete(keras, tmp_path):
    def stages(name):
        return lambda: shuffled().cache(str(tmp_path / name))

    model, expected, _ = fit(keras, [], stages=stages("plain"))
    found, history, session = fit(keras, [], folder=tmp_path / "saved", stages=stages("ours"))
    assert_same(Snapshot(found), Snapshot(model))
    assert_same_history(history, expected)
    assert any("a file cache" in note for note in session.record.notes)


@pytest.mark.slow
def test_a_csv_logger_keeps_its_settings_afterwards(keras, tmp_path):
    file = tmp_path / "log.csv"
    with pytest.raises(InterruptedError):
        fit(keras, [keras.callbacks.CSVLogger(str(file))], folder=tmp_path / "a", ends_at=2)
    logger = keras.callbacks.CSVLogger(str(file))
    fit(keras, [logger], folder=tmp_path / "a")
    assert len(file.read_text().splitlines()) == 1 + EPOCHS
    fit(keras, [logger])
    lines = file.read_text().splitlines()
    assert len(lines) == 1 + EPOCHS
    assert lines[0].startswith("epoch")


SOURCE = """
import tensorflow as tf

def with_global(y, y_pred):
    return tf.reduce_mean(tf.square(y - y_pred)) + 0.0 * len(str(OWN))

def made(own):
    def with_closure(y, y_pred):
        return tf.reduce_mean(tf.square(y - y_pred)) + 0.0 * len(str(own))
    return with_closure

def with_default(y, y_pred, own=OWN):
    return tf.reduce_mean(tf.square(y - y_pred)) + 0.0 * len(str(own))

def mapped(x, y):
    return x + 0.0 * len(str(OWN)), y

class Layer(keras.layers.Layer):
    def __init__(self, own):
        super().__init__()
        self.own = own
    def call(self, x):
        tf.print(self.own, output_stream="file:///dev/null")
        return x

class Callback(keras.callbacks.Callback):
    def __init__(self, own):
        super().__init__()
        self.own = own
    def on_epoch_end(self, epoch, logs=None):
        str(self.own)
"""
RESUMED = None
CASES = {
    "global": (lambda own: {"loss": own.with_global}, "with_global.OWN"),
    "closure": (lambda own: {"loss": own.made(own.OWN)}, "made.with_closure.own"),
    "default": (lambda own: {"loss": own.with_default}, "with_default.own"),
    "data": (lambda own: {"map": own.mapped}, "mapped.OWN"),
    "layer": (lambda own: {"layer": own.Layer(own.OWN)}, "layer.own"),
    "seed": (
        lambda own: {"layer": own.keras.layers.Dropout(0.5, seed=hash(own.OWN) % 1000)},
        "dropout.seed",
    ),
    "name": (lambda own: {"name": f"model-{own.OWN}"}, RESUMED),
    "callback": (lambda own: {"callback": own.Callback(own.OWN)}, RESUMED),
    "log folder": (lambda own: {"callback": own.keras.callbacks.TensorBoard(own.folder)}, RESUMED),
    "cache": (lambda own: {"cache": own.folder + "/cache"}, RESUMED),
}


def call_of(keras, own, *, loss="mse", layer=None, name=None, callback=None, cache=None, map=None):
    inputs = keras.Input((4,))
    x = keras.layers.Dense(3)(inputs)
    x = x if layer is None else layer(x)
    model = keras.Model(inputs, keras.layers.Dense(1)(x), name=name)
    model.compile("adam", loss)
    data = model_cases.regression()
    data = data if map is None else data.map(map)
    data = data if cache is None else data.cache(cache)
    return captured(model, data, callbacks=[] if callback is None else [callback])


def trained(keras, case, value, *, folder, **settings):
    (folder / value).mkdir(parents=True)
    own = types.SimpleNamespace(
        __name__="users_module", keras=keras, OWN=value, folder=str(folder / value)
    )
    keras.backend.clear_session()  # layers are numbered as in another process
    exec(compile(SOURCE, "users_module.py", "exec"), vars(own))
    call = call_of(keras, own, **case(own))
    checkpoints = str(folder / "checkpoints")
    training = {"checkpoint_folder": checkpoints, "checkpoint_every_steps": 1, **settings}
    session = session_with(TrainingPlan(steps_per_execution=5), training=training)
    session.fit(call)
    return session.record, Snapshot(call.model)


@pytest.mark.parametrize("name", CASES)
def test_a_training_resumes_or_what_differs_is_named(keras, name, tmp_path):
    case, place = CASES[name]
    _, first = trained(keras, case, "a1", folder=tmp_path)
    record, second = trained(keras, case, "b2", folder=tmp_path)
    if place is RESUMED:
        assert record.resumed_step == 20
        assert_same(second, first, rtol=0)
        return
    assert record.resumed_step is None
    (note,) = (each for each in record.notes if "belongs to another training" in each)
    assert f"Other values: {place}: " in note
    last = place.rpartition(".")[2]
    assert f"add training.resume_ignores: [{last}]; this applies to trainings" in note
    ignored = {"resume_ignores": [last], "folder": tmp_path / "ignored"}
    _, first = trained(keras, case, "a1", **ignored)
    record, second = trained(keras, case, "b2", **ignored)
    assert record.resumed_step == 20
    assert_same(second, first, rtol=0)


def test_an_edit_beside_an_ignored_name_makes_another_training(keras, tmp_path, monkeypatch):
    case = CASES["global"][0]
    trained(keras, case, "a1", folder=tmp_path, resume_ignores=["OWN"])
    monkeypatch.setitem(globals(), "SOURCE", SOURCE.replace("tf.square(", "tf.abs("))
    record, _ = trained(keras, case, "b2", folder=tmp_path, resume_ignores=["OWN"])
    assert record.resumed_step is None
