"""Layers on several devices (`placing`) train as on one device, and what is saved needs one.

Also `layer_chain`, `divided_tables` and `moved_variables`, on logical CPUs; which layer is where
is in `test_chain_cuts`.
"""

import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

SCRIPT = pathlib.Path(__file__).with_name("placed_models.py")


@pytest.mark.one_case
@pytest.mark.parametrize("name", ["transformer", "wide", "divided", "subclassed"])
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_layers_on_several_devices_train_as_on_one(package, name, tmp_path):
    done = subprocess.run(
        [sys.executable, SCRIPT, package, name, tmp_path],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert len(tf.config.list_logical_devices("CPU")) == 1
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    tokens = tf.constant(np.load(tmp_path / "tokens.npy"))
    (found,) = serve(**dict.fromkeys(serve.structured_input_signature[1], tokens)).values()
    np.testing.assert_allclose(found, np.load(tmp_path / "predictions.npy"), atol=1e-6)
