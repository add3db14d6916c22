"""What differs from process to process: a training resumes with it, or the note names it.

A second module of the same code stands for a second process, and the training resumes at its end.
The note is made of what `told` has of both.
"""

import types

import model_cases
import pytest
from model_cases import Snapshot, assert_same, captured, session_with

from tfx_perf.training.optimizations.plan import TrainingPlan

pytestmark = [pytest.mark.one_case, pytest.mark.usefixtures("no_flops", "saves_at_once")]

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
    "log folder": (
        lambda own: {"callback": own.keras.callbacks.TensorBoard(own.folder)},
        RESUMED,
    ),
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
    training = {"checkpoint_folder": checkpoints, "checkpoint_steps": 1, **settings}
    session = session_with(TrainingPlan(steps_per_call=5), training=training)
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
    (note,) = (each for each in record.notes if "is of another training" in each)
    assert f"Other values: {place}: " in note
    last = place.rpartition(".")[2]
    assert f"training.resume_ignores: [{last}] leaves them out, of trainings" in note
    ignored = {"resume_ignores": [last], "folder": tmp_path / "ignored"}
    _, first = trained(keras, case, "a1", **ignored)
    record, second = trained(keras, case, "b2", **ignored)
    assert record.resumed_step == 20
    assert_same(second, first, rtol=0)


def test_what_is_edited_beside_an_ignored_name_is_another_training(keras, tmp_path, monkeypatch):
    case = CASES["global"][0]
    trained(keras, case, "a1", folder=tmp_path, resume_ignores=["OWN"])
    monkeypatch.setitem(globals(), "SOURCE", SOURCE.replace("tf.square(", "tf.abs("))
    record, _ = trained(keras, case, "b2", folder=tmp_path, resume_ignores=["OWN"])
    assert record.resumed_step is None
