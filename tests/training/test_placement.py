"""Layers on several devices (`placing`) train as on one device; saved models need only one.

Also `layer_chain`, `divided_tables` and `moved_variables`, on logical CPUs; the choice of devices
is tested in `test_chain_cuts`.
"""

import pathlib
import signal

import numpy as np
import pytest
import tensorflow as tf
from model_cases import captured

from tests.training import script_forks
from tfx_perf.config import PerfConfig
from tfx_perf.core import errors
from tfx_perf.distribute.model_parallel.placing import over_devices
from tfx_perf.training.session import TrainingSession

SCRIPT = pathlib.Path(__file__).with_name("placed_models.py")
ON_HOST = tf.distribute.OneDeviceStrategy("/device:CPU:0")


def run(package, name, folder):
    return script_forks.run(SCRIPT, package, name, str(folder))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformer", "wide", "divided", "subclassed"])
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_layers_on_several_devices_train_like_on_one(package, name, tmp_path):
    done = run(package, name, tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    assert len(tf.config.list_logical_devices("CPU")) == 1
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    tokens = tf.constant(np.load(tmp_path / "tokens.npy"))
    inputs = serve.structured_input_signature[1]
    given = {name: tf.cast(tokens, spec.dtype) for name, spec in inputs.items()}
    (found,) = serve(**given).values()
    np.testing.assert_allclose(found, np.load(tmp_path / "predictions.npy"), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_a_divided_embedding_resumes_after_a_kill(package, tmp_path):
    assert run(package, "killed", tmp_path).returncode == -signal.SIGKILL
    done = run(package, "killed", tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]


def data():
    return tf.data.Dataset.from_tensors((tf.zeros([8, 6], tf.int32), tf.zeros([8, 1])))


def call_of(keras, *, clipnorm=None, regularizer=None, **compiled):
    with ON_HOST.scope():
        tokens = keras.Input((6,), dtype="int32")
        table = keras.layers.Embedding(1000, 16, embeddings_regularizer=regularizer, name="table")
        flat = keras.layers.Flatten()(table(tokens))
        model = keras.Model(tokens, keras.layers.Dense(1)(flat))
        model.compile(keras.optimizers.Adam(clipnorm=clipnorm), "mse", **compiled)
    return captured(model, data())


def settings(capacity):
    return PerfConfig.from_dict(
        {"distribution": {"strategy": "model_parallel", "device_memory_bytes": capacity}}
    )


@pytest.mark.each_choice
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "table, takes 256 KiB. Take more devices"),
        ({"regularizer": "l2"}, "and cannot be cut: its rows depend on each other. Take"),
        ({"clipnorm": 1.0}, "and cannot be cut: Adam updates all its rows together."),
    ],
    ids=["too little", "regularizer", "optimizer"],
)
def test_a_model_that_does_not_fit_is_an_error_before_the_first_step(options, words, keras):
    call = call_of(keras, **options)
    before = call.model.get_weights()
    with pytest.raises(errors.UserError, match=r"which hold 97\.7 KiB\. Received: ") as caught:
        TrainingSession(settings(100_000)).fit(call)
    assert words in str(caught.value)
    for one, other in zip(call.model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["run_eagerly", "jit_compile"])
def test_settings_that_prevent_placement_are_refused(name, keras):
    call = call_of(keras, **{name: True})
    with pytest.raises(errors.UserError, match=rf"Received: {name}=True\. Compile"):
        TrainingSession(settings(10**9)).fit(call)


def test_a_model_that_fits_one_device_is_placed_on_one(keras):
    call = call_of(keras)
    with over_devices(call, settings(10**9).distribution) as placement:
        history = call.proceed(verbose=0)
    (part,) = placement.parts
    assert {"table"} < set(part.layers)
    assert part.table_rows == {}
    assert placement.crossing_bytes_per_step == 0
    assert len(history.history["loss"]) == 2
    assert call.model.train_function is None
