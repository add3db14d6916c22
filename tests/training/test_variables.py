"""Every variable is found, wherever a model keeps it, under the same path every time."""

import functools

import pytest
import tensorflow as tf

from tfx_perf.training.keras_api import either_keras
from tfx_perf.training.keras_api.variables import named_variables

pytestmark = pytest.mark.each_choice


def model_with_hidden_state(keras):
    class Holder:
        def __init__(self):
            self.variable = tf.Variable(5.0, name="in_an_object")

    class Odd(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.raw = tf.Variable(1.0, name="raw")
            self.many = [tf.Variable(2.0, name="in_a_list")]
            self.by_name = {"x": tf.Variable(3.0, name="in_a_dictionary")}
            self.generator = tf.random.Generator.from_seed(3)
            self.holder = Holder()

        def call(self, inputs):
            return inputs * self.raw

    inputs = keras.Input((4,))
    model = keras.Model(inputs, keras.layers.Dense(1)(Odd()(inputs)))
    model.compile(optimizer=keras.optimizers.Adam(), loss="mse", metrics=["mae"])
    second, counter = keras.optimizers.SGD(momentum=0.9), tf.Variable(0, name="in_a_closure")
    own = model.train_step

    def train_step(data):
        counter.assign_add(1)
        return second, own(data)

    model.train_step = functools.partial(train_step)
    return model, second


def test_hidden_variables_are_found(keras):
    model, second = model_with_hidden_state(keras)
    found = either_keras.api_of(model).named_state(model)
    names = {variable.name.partition(":")[0].rpartition("/")[2] for variable in found.values()}
    hidden = {"raw", "in_a_list", "in_a_dictionary", "in_an_object", "in_a_closure", "StateVar"}
    assert hidden <= names
    identities = {id(variable) for variable in found.values()}
    assert len(identities) == len(found)
    listed = second.variables() if callable(second.variables) else second.variables
    for variable in [*model.variables, *listed]:
        assert id(getattr(variable, "_value", variable)) in identities


def test_the_same_code_gives_the_same_paths(keras):
    first, again = (model_with_hidden_state(keras)[0] for _ in range(2))
    keras_api = either_keras.api_of(first)
    paths = [list(keras_api.named_state(model)) for model in (first, again)]
    assert paths[0] == paths[1]


def test_an_object_that_contains_itself_is_searched_once():
    knot = {"variable": tf.Variable(1.0)}
    knot["self"] = [knot]
    assert list(named_variables({"root": knot})) == ["root/variable"]


def test_all_variables_that_a_step_uses_can_be_reached(keras):
    """Except for a global variable: no variable of an ordinary model is known by its name alone."""
    model, _ = model_with_hidden_state(keras)
    del model.train_step
    data = tf.data.Dataset.from_tensors((tf.ones([2, 4]), tf.ones([2, 1])))
    train = either_keras.api_of(model).keras_functions(model).train
    train.trace(iter(data))
    reachable = {id(each) for each in either_keras.api_of(model).state(model)}
    assert train.used_variables()
    assert {id(variable) for variable in train.used_variables()} <= reachable
