"""FLOPs are those of a typical batch, where each batch has a length of its own."""

import numpy as np
import pytest
import tensorflow as tf
from model_cases import captured

from tfx_perf.config import PerfConfig
from tfx_perf.gate import run as runs
from tfx_perf.training.loop import Loop
from tfx_perf.training.optimizations.plan import TrainingPlan
from tfx_perf.training.session import TrainingSession
from tfx_perf.training.trials.choice import PlanChoice
from tfx_perf.training.trials.plan_key import fit_key

pytestmark = pytest.mark.each_choice

PLAN = TrainingPlan(steps_per_call=2)
ROWS, BATCH_SIZE, WIDTH = 640, 8, 16


def sentences(*, order=None):
    """Returns words and labels of texts of very different lengths, in an order of their own."""
    lengths = np.random.default_rng(0).geometric(1 / 12, size=ROWS)
    if order is not None:
        lengths = np.random.default_rng(order).permutation(lengths)
    return tf.data.Dataset.from_tensor_slices(lengths).map(
        lambda length: (tf.ones([length], tf.int64), tf.ones([1]))
    )


def padded(examples, *, seed=None):
    if seed is not None:
        examples = examples.shuffle(ROWS, seed=seed)
    return examples.padded_batch(BATCH_SIZE, ([None], [1])).repeat()


def record_of(keras, data, *, width=WIDTH):
    layers = keras.layers
    words = keras.Input((None,), dtype="int64")
    each = layers.Dense(width, activation="relu")(layers.Embedding(50, WIDTH)(words))
    model = keras.Model(words, layers.Dense(1)(layers.GlobalAveragePooling1D()(each)))
    model.compile("sgd", "mse")
    call = captured(model, data, epochs=1, steps_per_epoch=10)
    choice = PlanChoice(plan=PLAN, plan_reason="for the test", fit=fit_key(call, Loop(call)))
    session = TrainingSession(PerfConfig(), choice=choice)
    session.fit(call)
    assert session.record.plan == PLAN
    return session.record


@pytest.mark.slow
def test_the_order_of_the_data_makes_no_difference(keras):
    one, other = (record_of(keras, padded(sentences(), seed=seed)) for seed in (1, 2))
    assert one.flops_per_step == other.flops_per_step
    assert one.environment == other.environment
    # Nor does it much where the files themselves are in another order.
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
                (np.ones((BATCH_SIZE, length), np.int64), np.ones((BATCH_SIZE, 1), np.float32))
            ).repeat(),
        ).flops_per_step
        for length in (lengths[8], lengths[24])
    ]
    assert fixed[0] < flops < fixed[1]


def test_batches_that_cannot_be_read_again_do_not_decide_what_is_comparable(keras):
    read = padded(sentences(), seed=1)
    data = tf.data.Dataset.from_generator(lambda: read, output_signature=read.element_spec)
    record = record_of(keras, data)
    assert record.flops_per_step
    assert runs.sizes(record.environment).keys() == {"parameter_count"}
    assert any("first batch" in note for note in record.notes)
