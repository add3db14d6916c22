"""Real out-of-memory errors, from TensorFlow's allocator with a limit, in child processes.

The `oom_guard` runs a step again that failed half-way; what that needs is in the `journal`.
"""

import importlib
import json
import re
import signal

import child_scripts
import model_cases
import numpy as np
import out_of_memory
import pytest
import tensorflow as tf

from tfx_perf.core import errors
from tfx_perf.training.loop import Loop
from tfx_perf.training.optimizations.plan import TrainingPlan

pytestmark = pytest.mark.one_case

# Seldom, on a busy machine, a kernel of oneDNN crashes where it is given no memory.
_TRIES = 3


def train(package, *, limit_mib, steps, scenario):
    """Returns what the child found and what it logged."""
    limit = {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit_mib)}
    limit["TF_ENABLE_ONEDNN_OPTS"] = "0"  # its workspace would depend on the processor
    for _ in range(_TRIES):
        child = child_scripts.run(
            out_of_memory, package, str(steps), scenario, environment=limit
        )
        if child.returncode != -signal.SIGSEGV:
            break
    return json.loads(child_scripts.last_line(child)), child.stderr


@pytest.mark.slow_where("tf_keras")
def test_the_batch_is_run_again_in_slices_and_nothing_else_changes(keras):
    package = keras.__name__
    found, log = train(package, limit_mib=44, steps=5, scenario="short")
    assert found["oom_count"] >= 1  # how often depends on what TensorFlow runs at once
    assert found["micro_batches"] == 2 ** found["oom_count"]
    assert f"the batch is run again in {found['micro_batches']} micro-batches" in log
    assert found["counter"] == 24
    assert_as_without_a_limit(found, keras)


@pytest.mark.slow
def test_every_replica_cuts_what_it_has_of_the_batch(keras):
    found, log = train(keras.__name__, limit_mib=44, steps=5, scenario="replicas")
    assert found["oom_count"] >= 1
    assert f"the batch is run again in {found['micro_batches']} micro-batches" in log
    assert_as_without_a_limit(found, keras)


@pytest.mark.slow
def test_what_is_compiled_together_goes_on_step_by_step(keras):
    """And there in slices: what is compiled together needs less than single steps do."""
    found, log = train(keras.__name__, limit_mib=36, steps=5, scenario="compiled")
    assert re.search(r"Out of memory \(.*trying to allocate \d+ bytes.*; the steps go on one", log)
    assert found["oom_count"] >= 1
    assert_as_without_a_limit(found, keras)


def assert_as_without_a_limit(found, keras):
    assert found["steps"] == found["iterations"] == 24
    model = out_of_memory.build(keras)
    expected = model.fit(out_of_memory.data(), epochs=2, verbose=0)
    for weight, value in zip(model.get_weights(), found["weights"], strict=True):
        np.testing.assert_allclose(value, weight, rtol=1e-5, atol=1e-5 * np.abs(weight).max())
    for key, values in expected.history.items():  # also those that the failed step had updated
        same = next(v for k, v in found["history"].items() if k.startswith(key[:3]))
        np.testing.assert_allclose(same, values, rtol=1e-5, err_msg=key)


@pytest.mark.slow
def test_plain_fit_goes_on_with_a_step_that_can_be_sliced():
    found, _ = train("keras", limit_mib=52, steps=1, scenario="plain fit")
    assert found["notes"] == [
        "Out of memory with plain fit: went back to step 0 and on with 1 step per call."
    ]
    assert found["oom_count"] >= 1
    assert_as_without_a_limit(found, importlib.import_module("keras"))


@pytest.mark.slow
def test_larger_slices_return_when_memory_does():
    found, _ = train("keras", limit_mib=136, steps=3, scenario="ballast")
    before, short, *after = found["sizes"]
    assert before == 1
    assert short > 1
    assert after[-1] == 1, found["sizes"]
    assert found["iterations"] == 96


@pytest.mark.slow
def test_a_row_that_does_not_fit_is_a_clear_error():
    found, _ = train("tf_keras", limit_mib=205, steps=1, scenario="one row")
    assert found["micro_batches"] == 2  # as many as there are rows
    assert found["error"].startswith("Expected enough memory for a training step on one row.")
    assert "weights 68.7 MiB, optimizer state 68.7 MiB, gradients 68.7 MiB" in found["error"]


def raise_exhausted(value):
    raise MemoryError("planted")  # which tf.py_function makes a ResourceExhaustedError


def test_sparse_and_ragged_batches(keras):
    largest = 8  # rows that "fit"

    def check(rows):
        if rows > largest:
            raise_exhausted(rows)

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.last = keras.layers.Dense(1)

        def call(self, inputs):
            sparse, ragged = inputs["sparse"], inputs["ragged"]
            features = tf.sparse.to_dense(sparse)
            features.set_shape([None, 4])
            with tf.control_dependencies([tf.py_function(check, [tf.shape(features)[0]], [])]):
                sums = tf.reduce_sum(ragged.to_tensor(shape=[None, 3]), axis=1, keepdims=True)
            return self.last(tf.concat([features, sums], axis=1))

    values = model_cases.features(4) * (model_cases.features(4, seed=4) > 0)
    lengths = np.random.default_rng(2).integers(0, 4, size=len(values))
    ragged = tf.RaggedTensor.from_row_lengths(np.ones(lengths.sum(), "float32"), lengths)
    inputs = {"sparse": tf.sparse.from_dense(values), "ragged": ragged}
    data = model_cases.batched(inputs, model_cases.features(1, seed=1))
    model = Model()
    model.compile("adam", "mse", metrics=["mae"])
    model(next(iter(data))[0])
    call = model_cases.captured(model, data)
    before = model_cases.Snapshot(model)
    expected = call.proceed()
    trained = model_cases.Snapshot(model)
    before.restore()
    largest = 3
    loop = Loop(call)
    history, _ = loop.fit(TrainingPlan(steps_per_call=3))
    assert loop.oom_guard.oom_count == 2
    assert loop.oom_guard.micro_batches == 4
    model_cases.assert_same(model_cases.Snapshot(model), trained)
    model_cases.assert_same_history(history, expected)


def test_who_asks_about_a_plan_does_not_change_what_the_training_came_to(keras):
    def check(rows):
        if rows > 1:
            raise_exhausted(rows)

    class OneRowFits(keras.layers.Layer):
        def call(self, inputs):
            with tf.control_dependencies([tf.py_function(check, [tf.shape(inputs)[0]], [])]):
                return tf.identity(inputs)

    model = keras.Sequential([keras.layers.Input((4,)), OneRowFits(), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    plan = TrainingPlan(steps_per_call=3)
    loop = Loop(model_cases.captured(model, model_cases.regression()))
    loop.fit(plan)
    assert loop.oom_guard.micro_batches == model_cases.BATCH_SIZE
    loop.turn(plan)
    loop.functions.of(plan)
    loop.functions.used_by(plan)
    loop.functions.used_by(TrainingPlan(steps_per_call=3, xla=True))
    assert loop.oom_guard.micro_batches == model_cases.BATCH_SIZE


@pytest.mark.parametrize("failing", ["iterator", "apply"])
def test_what_micro_batches_cannot_mend_is_passed_on(keras, failing):
    """An exhausted disk under the input is not a batch too large, nor is a torn update whole."""
    data = model_cases.regression()
    model = model_cases.dense(keras)
    if failing == "iterator":

        def broken(x, y):
            x.set_shape([None, 4])
            return tf.ensure_shape(tf.py_function(raise_exhausted, [x], tf.float32), [None, 4]), y

        data = data.map(broken)
        expected = tf.errors.ResourceExhaustedError
    else:
        own = model.optimizer.apply_gradients

        def broken(pairs, **arguments):
            result = own(pairs, **arguments)
            tf.py_function(raise_exhausted, [0.0], [])
            return result

        model.optimizer.apply_gradients = broken
        expected = errors.HalfAppliedError
    call = model_cases.captured(model, model_cases.regression())
    call.arguments["x"] = data
    loop = Loop(call)
    with pytest.raises(expected):
        loop.fit(TrainingPlan(steps_per_call=3))
    assert loop.oom_guard.oom_count == 0
