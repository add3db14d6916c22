"""The largest batch that MemoryProfiler claims, compared with real trainings.

The claim rests on the `footprints` of a few batch sizes: a training's memory (`footprint`).
"""

import os
import pathlib
import subprocess
import sys

import psutil
import pytest
import training_cases

from tfx_perf.memory.record import ProfileRecord

pytestmark = pytest.mark.each_choice

_MODULE = """
import {line} as keras
import tensorflow as tf

{beginning}

def training(batch_size):
    inputs = keras.Input((256,))
    hidden = {layer}(inputs)
    for _ in range(6):
        hidden = keras.layers.Dense(512, "relu")(hidden)
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    model.compile("adam", "mse", {train})
    example = tf.zeros((256,)), tf.zeros((1,))
    return model, tf.data.Dataset.from_tensors(example).repeat().batch(batch_size)

def run_fn(fn_args):
    model, data = training(1024)
    model.fit(data, steps_per_epoch=1000)
"""
_EAGER = """
class Eager(keras.layers.Layer):
    def call(self, x):
        y = tf.py_function(lambda x: x, [x], x.dtype)
        y.set_shape(x.shape)
        return y
"""
_TRAINING = """
import resource, sys
import psutil
sys.path.insert(0, sys.argv[1])
module = __import__(sys.argv[2])
model, data = module.training(int(sys.argv[3]))
before = psutil.Process().memory_info().rss
model.fit(data, steps_per_epoch=5, verbose=0)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before)
"""


def profiled(folder, *, memory=None, **module):
    """Runs the executor; returns the record and the module's path."""
    trainer = training_cases.Trainer(folder)
    path = trainer.write_module(template=_MODULE, **module)
    profile = trainer.profile(path, settings={"memory": memory or {}})
    return ProfileRecord.read(pathlib.Path(profile.uri) / "profile.json"), path


@pytest.mark.slow
@pytest.mark.parametrize("line", ["keras", "tf_keras"])
@pytest.mark.parametrize("jit_compile", ["False", "True"])
def test_a_training_with_the_largest_batch_takes_the_allowed_memory(line, jit_compile, tmp_path):
    share = 700 * 2**20 / psutil.virtual_memory().available
    record, path = profiled(
        tmp_path,
        line=line,
        layer="keras.layers.Identity()",
        train=f"jit_compile={jit_compile}",
        memory={"max_device_utilization": share},
    )
    assert record.trained_plan == ("xla" if jit_compile == "True" else "plain")
    # XLA's memory may double from one batch size to the next; then the claim stays below.
    doubles = line == "keras" and jit_compile == "True"
    assert doubles or not record.largest_is_lower_bound
    trained = record.figures()["largest_trained_batch_size"]
    assert 0.7 * record.largest_batch_size <= trained
    command = [sys.executable, "-c", _TRAINING, str(path.parent), path.stem]
    done = subprocess.run(
        [*command, str(record.largest_batch_size)],
        check=True, capture_output=True, text=True, env={**os.environ, "TF_USE_LEGACY_KERAS": "0"},
    )  # fmt: skip
    if record.largest_is_lower_bound:  # because a larger size was tried and took too much
        assert "out of memory" in {each.status for each in record.footprints}
    used_ratio = int(done.stdout.split()[-1]) / record.memory_limit_bytes
    assert (0.2 if record.largest_is_lower_bound else 0.75) < used_ratio < 1.2


@pytest.mark.slow
def test_the_footprint_is_that_of_the_plan_that_trains(tmp_path):
    record, _ = profiled(
        tmp_path, line="keras", beginning=_EAGER, layer="Eager()", train="jit_compile=True"
    )
    assert record.trained_plan == "xla"
    assert record.step("plain", 1024).status == "measured"
    (footprint,) = record.footprints  # XLA cannot compile it
    assert (footprint.batch_size, footprint.status) == (1024, "failed")
    assert record.largest_batch_size is None
    assert footprint.reason in record.largest_remark
