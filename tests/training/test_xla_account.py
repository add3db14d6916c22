"""Records of a step by `ended_training`: XLA's account of it, its FLOPs, and its loss.

XLA compiles programs for shapes, fuses and executes them. FLOPs are those of the whole step,
however little of it is traced for them (`model_flops`), and of a typical batch if each batch
has a different length; those of several replicas are counted in `test_collectives`.
"""

import model_cases
import numpy as np
import pytest
import tensorflow as tf
from model_cases import captured

from tfx_perf.config import PerfConfig
from tfx_perf.gate import run as runs
from tfx_perf.training import ended_training, model_flops
from tfx_perf.training.loop.fit_loop import FitLoop
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.speedups import precision
from tfx_perf.training.speedups.plan import PLAIN_FIT, TrainingPlan
from tfx_perf.training.tuning.choice import PlanChoice
from tfx_perf.training.tuning.plan_key import fit_key
from tfx_perf.xla import hlo

pytestmark = pytest.mark.each_choice

COMPILED = TrainingPlan(steps_per_execution=2, xla=True)
BATCH_SIZE = 24  # of 80 rows: the fourth batch has 8


def rows():
    tensors = model_cases.features(4), model_cases.features(1, seed=1)
    return tf.data.Dataset.from_tensor_slices(tensors)


def ragged():
    return rows().batch(BATCH_SIZE)


def trained(call, plan=COMPILED):
    choice = PlanChoice(plan=plan, plan_reason="for the test", fit=fit_key(call, FitLoop(call)))
    session = TrainingSession(PerfConfig(), choice=choice)
    session.fit(call)
    assert session.record.plan == plan
    return session.record


def test_every_shape_is_a_program_of_its_own(keras):
    plan = TrainingPlan(steps_per_execution=1, xla_loop=True)
    record = trained(captured(model_cases.dense(keras), ragged(), epochs=3), plan)
    assert record.xla.compiled_shapes == ("1x24x4, 1x24x1", "1x8x4, 1x8x1")
    figures = record.figures()
    assert figures["xla_compile_count"] == 2
    assert figures["xla_compile_success_ratio"] == 1.0
    assert figures["xla_fusion_count"] > 0
    assert figures["xla_fusion_saved_bytes"] > 0
    assert [item.code for item in record.advice if item.code == "many_shapes"] == []


def test_known_shapes_are_one_program_and_products_are_counted_once(keras):
    data = rows().batch(8, drop_remainder=True)
    record = trained(captured(model_cases.dense(keras), data, epochs=3))
    assert record.xla.compiled_shapes == ("8x4, 8x1",)
    macs = 8 * (4 * 8 * 2 + 8 * 1 * 3)
    figures = record.figures()
    assert figures["macs_per_step"] == macs
    assert figures["executed_flops_per_step"] == figures["flops_per_step"] == 2 * macs
    assert figures["hfu_ratio"] == figures["mfu_ratio"] > 0


def test_a_call_of_another_length_is_another_program(keras):
    loop = FitLoop(captured(model_cases.dense(keras), rows().batch(8, drop_remainder=True)))
    for steps_per_execution in (2, 4):
        plan = TrainingPlan(steps_per_execution=steps_per_execution, xla_loop=True)
        loop.fit(plan)
    assert loop.functions.used_by(plan).compiled_shapes == ("2x8x4, 2x8x1", "4x8x4, 4x8x1")


def test_keras_own_compiled_step_is_read_too(keras):
    call = captured(model_cases.dense(keras), ragged())
    call.model.jit_compile = True
    batch = next(iter(ragged()))
    account = ended_training.xla_account(call.model, FitLoop(call), PLAIN_FIT, batch)
    assert account.compiled_shapes is None
    assert account.fusion_count > 0


@pytest.mark.slow
def test_trials_record_what_xla_compiled_and_could_not_compile(keras):
    settings = model_cases.settings_that_try(xla=True, steps_per_execution=[2])
    session = TrainingSession(settings)
    session.fit(captured(model_cases.dense(keras), ragged().repeat(), steps_per_epoch=40))
    (tried,) = [trial for trial in session.record.trials if trial.plan.xla]
    assert tried.compiled_shapes == ("?x4, ?x1",)
    assert session.record.figures()["xla_compile_success_ratio"] == 1.0

    class Strings(keras.layers.Layer):
        def call(self, inputs):
            lengths = tf.strings.length(tf.strings.as_string(inputs))
            return inputs + 0.0 * tf.cast(lengths, tf.float32)

    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(1)(Strings()(inputs)))
    model.compile(optimizer="sgd", loss="mse")
    session = TrainingSession(settings)
    session.fit(captured(model, model_cases.regression().repeat(), steps_per_epoch=40))
    (tried,) = [trial for trial in session.record.trials if trial.plan.xla]
    assert tried.status == "failed"
    assert session.record.figures()["xla_compile_success_ratio"] == 0.0


def test_recomputed_operations_are_executed_again():
    rows, width, units = 16, 8, 32
    weights = tf.Variable(tf.ones((width, units)))

    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.recompute_grad(lambda x: tf.tanh(x @ weights))(x))
        return loss, tape.gradient(loss, [weights])

    product = 2 * rows * width * units
    once_more = hlo.count_flops(hlo.step_hlo(step, tf.ones((rows, width)), optimized=False))
    assert once_more == 3 * product  # forward, forward again, the weights' gradient


@pytest.mark.parametrize(("share", "kept"), [(0.99, True), (1.01, False)])
def test_more_than_the_peak_is_refused(share, kept):
    flops = model_flops.Flops(1000, 1e6, "measured: here")
    found = flops.without_exceeded_peak(2000, 2000 / (share * 1e6))
    assert (found.peak_per_second is not None) == kept
    assert kept == (found.note is None)
    if not kept:
        assert "101% of the peak (measured: here)" in found.note


PLAN = TrainingPlan(steps_per_execution=2)
ROWS, PADDED_ROWS, WIDTH = 640, 8, 16


def sentences(*, order=None):
    """Returns words and labels of texts of very different lengths, in an order of its own."""
    lengths = np.random.default_rng(0).geometric(1 / 12, size=ROWS)
    if order is not None:
        lengths = np.random.default_rng(order).permutation(lengths)
    return tf.data.Dataset.from_tensor_slices(lengths).map(
        lambda length: (tf.ones([length], tf.int64), tf.ones([1]))
    )


def padded(examples, *, seed=None):
    if seed is not None:
        examples = examples.shuffle(ROWS, seed=seed)
    return examples.padded_batch(PADDED_ROWS, ([None], [1])).repeat()


def record_of(keras, data, *, width=WIDTH):
    layers = keras.layers
    words = keras.Input((None,), dtype="int64")
    each = layers.Dense(width, activation="relu")(layers.Embedding(50, WIDTH)(words))
    model = keras.Model(words, layers.Dense(1)(layers.GlobalAveragePooling1D()(each)))
    model.compile("sgd", "mse")
    call = captured(model, data, epochs=1, steps_per_epoch=10)
    return trained(call, PLAN)


@pytest.mark.slow
def test_the_order_of_the_data_makes_no_difference(keras):
    one, other = (record_of(keras, padded(sentences(), seed=seed)) for seed in (1, 2))
    assert one.flops_per_step == other.flops_per_step
    assert one.environment == other.environment
    # Nor much difference if the files themselves are in another order.
    moved = record_of(keras, padded(sentences(order=3)))
    assert moved.flops_per_step == pytest.approx(one.flops_per_step, rel=0.15)
    assert not runs.differences(moved.environment, one.environment)
    large = record_of(keras, padded(sentences(), seed=2), width=2 * WIDTH)
    assert "flops_per_step" in runs.differences(one.environment, large.environment)


@pytest.mark.slow
def test_it_is_the_step_of_a_batch_of_usual_length(keras):
    data = padded(sentences())
    lengths = sorted(batch[0].shape[1] for batch in data.take(32))
    flops = record_of(keras, data).flops_per_step
    fixed = [
        record_of(
            keras,
            tf.data.Dataset.from_tensors(
                (np.ones((PADDED_ROWS, length), np.int64), np.ones((PADDED_ROWS, 1), np.float32))
            ).repeat(),
        ).flops_per_step
        for length in (lengths[8], lengths[24])
    ]
    assert fixed[0] < flops < fixed[1]


def test_batches_that_cannot_be_reread_do_not_affect_comparability(keras):
    read = padded(sentences(), seed=1)
    data = tf.data.Dataset.from_generator(lambda: read, output_signature=read.element_spec)
    record = record_of(keras, data)
    assert record.flops_per_step
    assert runs.sizes(record.environment).keys() == {"parameter_count"}
    assert any("first batch" in note for note in record.notes)


def test_optimizer_and_metrics_have_none(keras):
    model = model_cases.dense(keras)
    batch = tf.ones((8, 4)), tf.ones((8, 1))
    whole = hlo.count_flops(hlo.model_step_hlo(model, batch, optimized=False))
    assert model_flops.count_flops(model, batch).per_step == whole > 0


@pytest.mark.parametrize(("policy", "dtype"), [(None, "float32"), ("mixed_bfloat16", "bfloat16")])
def test_the_peak_is_that_of_the_models_own_precision(keras, policy, dtype, monkeypatch):
    def peak(device, dtype):
        return model_flops.Peak(flops_per_second=1e12, source=str(dtype))

    monkeypatch.setattr(model_flops, "peak_flops", peak)
    with precision.policy(policy):
        model = model_cases.dense(keras)
    batch = tf.ones((8, 4)), tf.ones((8, 1))
    assert model_flops.count_flops(model, batch).peak_source == dtype


def test_a_custom_step_counts_as_a_whole(keras):
    class Twice(keras.Model):
        def train_step(self, data):
            tf.linalg.matmul(data[0], data[0], transpose_b=True)
            return super().train_step(data)

    model = model_cases.linear(keras, Twice)
    batch = tf.ones((8, 4)), tf.ones((8, 1))
    whole = hlo.count_flops(hlo.model_step_hlo(model, batch, optimized=False))
    assert model_flops.count_flops(model, batch).per_step == whole > 0


def _own(y_true, y_pred):
    return y_pred


@pytest.mark.parametrize("kind", ["string", "function", "object", "own", "several", "added"])
def test_a_dimension_has_a_name_only_if_that_tells_its_value(keras, kind):
    name = "binary_crossentropy"
    loss = {
        "function": keras.losses.binary_crossentropy,
        "object": keras.losses.BinaryCrossentropy(),
        "own": _own,
        "several": [name],
    }.get(kind, name)
    regularizer = "l2" if kind == "added" else None
    model = keras.Sequential([keras.layers.Dense(1, kernel_regularizer=regularizer)])
    model.build((None, 2))
    model.compile(loss=loss)
    known = name if kind in ("string", "function", "object") else ""
    assert ended_training.loss_name(model) == known
