"""A captured fit as a `TrainConsumer` of datasets: it trains as many steps as requested."""

import model_cases
import numeric_models
import numpy as np
import pytest
import tensorflow as tf

from tfx_perf.components.input_tuner import training
from tfx_perf.core import errors

pytestmark = pytest.mark.one_case


def make(model, data, **arguments):
    made = training.TrainConsumer(model_cases.captured(model, data, **arguments))
    made.prepare()
    return made


def steps_taken(model):
    return int(model.optimizer.iterations.numpy())


@pytest.mark.parametrize("name", ["multi_output", "subclass", "class_weight"])
def test_trains_exactly_as_many_steps_as_requested(keras, name):
    build = {**numeric_models.MODELS, **numeric_models.FEATURES}.get(name)
    model, data = build(keras) if build else (model_cases.subclass(keras), model_cases.regression())
    data = data.take(10)
    made = make(model, data, **numeric_models.ARGUMENTS.get(name, {}))
    before, steps_before = model_cases.Snapshot(model), steps_taken(model)
    take = made.consume(data)  # ends after 10 steps
    take(1)
    take(25)
    assert steps_taken(model) == steps_before + 26
    trained = model_cases.Snapshot(model).values
    assert any(not np.array_equal(a, b) for a, b in zip(before.values, trained, strict=True))


def test_every_iterator_starts_from_the_beginning_and_datasets_may_be_endless(keras):
    model = model_cases.dense(keras)
    seen = []
    data = model_cases.regression()

    def record(number, batch):
        tf.py_function(lambda value: seen.append(int(value)), [number], [])
        return batch

    watched = data.enumerate().map(record).repeat()
    made = make(model, data)
    steps_before = steps_taken(model)
    for _ in range(2):
        made.consume(watched)(4)
    assert seen.count(0) >= 2
    assert steps_taken(model) == steps_before + 8


def test_repeated_batch_is_the_first_of_the_data_with_its_spec(keras):
    data = model_cases.regression()
    made = make(model_cases.dense(keras), data)
    repeated = made.repeated_batch()
    assert repeated.element_spec == data.element_spec
    assert repeated.cardinality() == tf.data.INFINITE_CARDINALITY
    first = next(iter(data))
    for batch in repeated.take(3):
        np.testing.assert_array_equal(batch[0], first[0])
        np.testing.assert_array_equal(batch[1], first[1])
    made.consume(repeated)(5)
    assert made.batch_size == model_cases.BATCH_SIZE


def test_a_model_that_cannot_be_taken_over_trains_with_keras_own_function(keras):
    traced = []

    class Own(keras.Model):
        def make_train_function(self, force=False):
            traced.append(force)
            return super().make_train_function(force)

    inputs = keras.Input((4,))
    model = Own(inputs, keras.layers.Dense(1)(inputs))
    model.compile(optimizer="sgd", loss="mse", steps_per_execution=4)
    made = make(model, model_cases.regression())
    take = made.consume(model_cases.regression())
    steps_before = steps_taken(model)
    take(3)
    take(10)
    assert steps_taken(model) == steps_before + 13
    assert traced


def test_arrays_cannot_be_exchanged(keras):
    data = model_cases.features(4)
    with pytest.raises(errors.UserError, match="Received: x=ndarray"):
        make(model_cases.dense(keras), data, y=model_cases.features(1))
