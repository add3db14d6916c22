"""Real out-of-memory errors, from TensorFlow's limited allocator, in child processes.

A step that runs out of memory is recognized by `shortage`; `fit_recovery` resumes in slices.
"""

import importlib
import itertools
import json
import signal

import model_cases
import numpy as np
import out_of_memory
import pytest
import tensorflow as tf

from tests import processes
from tfx_perf.core import errors
from tfx_perf.training.speedups.plan import TrainingPlan
from tfx_perf.training.step import compiled_call, steps

pytestmark = [pytest.mark.one_case, pytest.mark.usefixtures("no_flops", "saves_at_once")]

# On a busy machine, a kernel of oneDNN occasionally crashes if it gets no memory.
_TRIES = 3


ROWS = 40
NUMBERS = np.arange(ROWS, dtype="float32")[:, None]


def train(package, *, limit_mib, steps, scenario):
    """Returns the child's results and its log."""
    limit = {"TF_CPU_ALLOCATOR_USE_BFC": "1", "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(limit_mib)}
    limit["TF_ENABLE_ONEDNN_OPTS"] = "0"  # its workspace would depend on the processor
    for _ in range(_TRIES):
        child = processes.python(
            out_of_memory.__file__, package, steps, scenario, environment=limit
        )
        if child.returncode != -signal.SIGSEGV:
            break
    return json.loads(processes.last_line(child)), child.stderr


@pytest.mark.slow_where("tf_keras")
def test_it_rolls_back_and_continues_in_slices_and_nothing_else_changes(keras):
    found, log = train(keras.__name__, limit_mib=52, steps=5, scenario="short")
    assert found["oom_count"] >= 1  # depends on what TensorFlow runs at once
    assert found["micro_batches"] == 2 ** found["oom_count"]
    assert "Out of memory (OOM when allocating tensor" in found["notes"][0]
    assert f"now 5 steps per execution, {found['micro_batches']} micro-batches." in log
    assert_as_without_a_limit(found, keras)


@pytest.mark.slow
def test_every_replica_slices_its_own_part_of_the_batch(keras):
    found, _ = train(keras.__name__, limit_mib=44, steps=5, scenario="replicas")
    assert found["oom_count"] >= 1
    assert found["micro_batches"] == 2 ** found["oom_count"]
    assert_as_without_a_limit(found, keras)


def assert_as_without_a_limit(found, keras):
    assert found["iterations"] == 24
    model = out_of_memory.build(keras)
    expected = model.fit(out_of_memory.data(), epochs=2, verbose=0)
    for weight, value in zip(model.get_weights(), found["weights"], strict=True):
        np.testing.assert_allclose(value, weight, rtol=1e-5, atol=1e-5 * np.abs(weight).max())
    for key, values in expected.history.items():  # including those that the failed step had updated
        same = next(v for k, v in found["history"].items() if k.startswith(key[:3]))
        np.testing.assert_allclose(same, values, rtol=1e-5, err_msg=key)


@pytest.mark.slow
def test_keras_fit_resumes_with_a_step_that_can_be_sliced():
    found, _ = train("keras", limit_mib=52, steps=1, scenario="Keras fit")
    (note,) = found["notes"]
    assert "with Keras fit: rolled back to step 0; now 1 step per execution, 2 micro-b" in note
    assert_as_without_a_limit(found, importlib.import_module("keras"))


@pytest.mark.slow
def test_a_row_that_does_not_fit_is_a_clear_error():
    found, _ = train("tf_keras", limit_mib=205, steps=1, scenario="one row")
    assert found["oom_count"] == 1  # with two slices there is a row in each
    assert found["error"].startswith("Expected enough memory for a training step on one row.")
    assert "weights 68.7 MiB, optimizer state 68.7 MiB, gradients 68.7 MiB" in found["error"]
    assert "one row of the batch 68 B, peak of CPU:0 " in found["error"]


def raise_exhausted(*_):
    raise MemoryError("planted")  # tf.py_function turns it into a ResourceExhaustedError


def test_sparse_and_ragged_batches(keras):
    largest = 8  # rows that "fit"

    def check(rows):
        if rows > largest:
            raise_exhausted()

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
    expected, trained = model_cases.plain_fit(call)
    largest = 3
    session = model_cases.session_with(TrainingPlan(steps_per_execution=3))
    history = session.fit(call)
    assert (session.record.oom_count, session.record.micro_batches) == (2, 4)
    model_cases.assert_same(model_cases.Snapshot(model), trained)
    model_cases.assert_same_history(history, expected)


def test_a_call_compiled_as_a_whole_is_replaced_by_slices(keras, monkeypatch):
    def run(self, stacked, steps):
        raise tf.errors.ResourceExhaustedError(None, None, "Out of memory while trying")

    monkeypatch.setattr(compiled_call.CompiledCall, "_trained", run)
    call = model_cases.captured(model_cases.dense(keras), model_cases.regression())
    expected, trained = model_cases.plain_fit(call)
    session = model_cases.session_with(TrainingPlan(steps_per_execution=3, xla_loop=True))
    history = session.fit(call)
    assert session.record.plan == TrainingPlan(steps_per_execution=3, micro_batches=2)
    model_cases.assert_same(model_cases.Snapshot(call.model), trained)
    model_cases.assert_same_history(history, expected)


def fail_once(optimizer, *, update=3):
    """Has one update of a training, by default the third, torn by a lack of memory."""
    own, calls = optimizer.apply_gradients, []

    def fail():
        calls.append(None)
        if len(calls) == update:
            raise_exhausted()

    def torn(pairs, **arguments):
        result = own(pairs, **arguments)
        tf.py_function(fail, [], [])
        return result

    optimizer.apply_gradients = torn


def test_a_torn_update_is_taken_back(keras):
    call = model_cases.captured(model_cases.dense(keras), model_cases.regression())
    expected, trained = model_cases.plain_fit(call)
    fail_once(call.model.optimizer)
    session = model_cases.session_with(TrainingPlan(steps_per_execution=3))
    history = session.fit(call)
    assert (session.record.oom_count, session.record.micro_batches) == (1, 2)
    model_cases.assert_same(model_cases.Snapshot(call.model), trained)
    model_cases.assert_same_history(history, expected)


def test_an_error_of_the_data_is_no_lack_of_memory_in_the_step(keras):
    def broken(x, y):
        x.set_shape([None, 4])
        return tf.ensure_shape(tf.py_function(raise_exhausted, [x], tf.float32), [None, 4]), y

    call = model_cases.captured(model_cases.dense(keras), model_cases.regression())
    call.arguments["x"] = model_cases.regression().map(broken)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="planted"):
        model_cases.session_with(TrainingPlan(steps_per_execution=3)).fit(call)


def test_data_that_can_be_read_only_once_do_not_roll_back(keras):
    stream = itertools.cycle(zip(model_cases.features(4), model_cases.features(1), strict=True))
    specs = tf.TensorSpec([4]), tf.TensorSpec([1])
    data = tf.data.Dataset.from_generator(lambda: stream, output_signature=specs).batch(8)
    call = model_cases.captured(model_cases.dense(keras), data, steps_per_epoch=6)
    fail_once(call.model.optimizer)
    with pytest.raises(errors.UserError, match="a generator that gives each element once, and 3"):
        model_cases.session_with(TrainingPlan(steps_per_execution=3)).fit(call)


def visits_of(keras):
    """Returns a model that counts how often it trains on each row, and these counts."""

    class Visits(keras.layers.Layer):
        def build(self, shape):
            self.counts = self.add_weight(
                name="counts", shape=(ROWS,), initializer="zeros", trainable=False
            )

        def call(self, x, training=None):
            if training:
                rows = tf.cast(x[:, 0], "int32")
                self.counts.assign_add(tf.reduce_sum(tf.one_hot(rows, ROWS), axis=0))
            return x

    visits = Visits()
    inputs = keras.Input((1,))
    model = keras.Model(inputs, keras.layers.Dense(1)(visits(inputs) * 0.01))
    model.compile("sgd", "mse")
    return model, visits


def mapped_by_python(x, y):
    x = tf.py_function(lambda x: x, [x], tf.float32)
    return tf.ensure_shape(x, [None, 1]), y


@pytest.mark.parametrize("kind", ["arrays", "unseeded", "seeded", "python", "records"])
def test_rows_are_trained_once_per_epoch_without_a_folder(keras, kind, tmp_path):
    tf.random.set_seed(None)
    model, visits = visits_of(keras)
    data = tf.data.Dataset.from_tensor_slices((NUMBERS, 0 * NUMBERS))
    data = data.shuffle(ROWS, seed=3 if kind in ("seeded", "python") else None).batch(4)
    if kind == "python":
        data = data.map(mapped_by_python)
    if kind == "records":
        with tf.io.TFRecordWriter(str(tmp_path / "rows")) as writer:
            for number in NUMBERS:
                writer.write(number.tobytes())
        data = tf.data.TFRecordDataset([str(tmp_path / "rows")]).shuffle(ROWS, seed=3)
        data = data.apply(tf.data.experimental.assert_cardinality(ROWS))
        decoded = data.map(lambda text: tf.reshape(tf.io.decode_raw(text, NUMBERS.dtype), [1]))
        data = decoded.map(lambda x: (x, 0 * x)).batch(4)
    call = model_cases.captured(model, data)
    if kind == "arrays":
        call.arguments.update(x=NUMBERS, y=0 * NUMBERS, batch_size=4)
    visits.counts.assign(tf.zeros([ROWS]))
    fail_once(model.optimizer, update=6)
    session = model_cases.session_with(
        TrainingPlan(steps_per_execution=1), training={"checkpoint_every_steps": 2}
    )
    session.fit(call)
    assert "rolled back to step 4; now" in session.record.notes[0]
    is_told = any("reads its data again" in each for each in session.record.notes)
    assert is_told == (kind == "python")
    np.testing.assert_array_equal(np.array(visits.counts), 2)  # once in each of two epochs


def test_slicing_of_batches_of_unknown_size_ends(keras, monkeypatch):
    tries = []

    def run(self, *_, **__):
        tries.append(None)
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    monkeypatch.setattr(steps.MultiStep, "run", run)
    data = tf.data.Dataset.from_generator(
        lambda: iter(model_cases.regression()),
        output_signature=(tf.TensorSpec([None, 4]), tf.TensorSpec([None, 1])),
    ).apply(tf.data.experimental.assert_cardinality(model_cases.BATCHES))
    call = model_cases.captured(model_cases.dense(keras), data)
    with pytest.raises(errors.UserError, match="enough memory for a training step on one row"):
        model_cases.session_with(TrainingPlan(steps_per_execution=1)).fit(call)
    assert len(tries) <= 9
