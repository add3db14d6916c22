"""FLOPs are those of the whole step, however little of it is traced for them."""

import keras as keras3
import model_cases
import pytest
import tensorflow as tf
import tf_keras

from tests.training import script_forks, two_workers
from tfx_perf.training import model_flops
from tfx_perf.xla import hlo

_REPLICAS = """
import importlib, sys
import tensorflow as tf

replicas = int(sys.argv[2])
if replicas > 1:
    (cpu,) = tf.config.list_physical_devices("CPU")
    device = tf.config.LogicalDeviceConfiguration()
    tf.config.set_logical_device_configuration(cpu, [device] * replicas)
    strategy = tf.distribute.MirroredStrategy([f"CPU:{index}" for index in range(replicas)])
else:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
keras = importlib.import_module(sys.argv[1])
from tfx_perf.tf_internals import autograph
from tfx_perf.training import model_flops

with strategy.scope():
    layers = [keras.layers.Input((16,)), keras.layers.Dense(8), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile("adam", "mse", metrics=["mae"])
with autograph.libraries_unconverted():
    found = model_flops.count_flops(model, (tf.ones((64, 16)), tf.ones((64, 1))))
print("FLOPs", found.per_step, found.note, flush=True)
"""
# Forward and for the weights: 64 rows; for the inputs of the second layer.
_FLOPS = 2 * 64 * (2 * 16 * 8 + 3 * 8 * 1)


@pytest.mark.parametrize("keras", [keras3, tf_keras])
def test_optimizer_and_metrics_have_none(keras):
    model = model_cases.dense(keras)
    batch = tf.ones((8, 4)), tf.ones((8, 1))
    whole = hlo.count_flops(hlo.model_step_hlo(model, batch, optimized=False))
    assert model_flops.count_flops(model, batch).per_step == whole > 0


@pytest.mark.parametrize("keras", [keras3, tf_keras])
def test_an_own_step_counts_as_a_whole(keras):
    class Twice(keras.Model):
        def train_step(self, data):
            tf.linalg.matmul(data[0], data[0], transpose_b=True)
            return super().train_step(data)

    inputs = keras.Input((4,))
    model = Twice(inputs, keras.layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    batch = tf.ones((8, 4)), tf.ones((8, 1))
    whole = hlo.count_flops(hlo.model_step_hlo(model, batch, optimized=False))
    assert model_flops.count_flops(model, batch).per_step == whole > 0


@pytest.mark.one_case
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
@pytest.mark.slow_where("workers*")
@pytest.mark.parametrize("replicas", [1, 2], ids=["workers", "replicas"])
def test_of_several_replicas_those_of_the_whole_batch_count(package, replicas, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(_REPLICAS)
    arguments = package, str(replicas)
    if replicas == 1:
        ended = two_workers.run(script, [arguments] * 2, timeout=200)
    else:
        ended = [script_forks.run(script, *arguments, timeout=200)]
    for done in ended:
        assert f"FLOPs {_FLOPS} None" in done.stdout, done.stdout + done.stderr
