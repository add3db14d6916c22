"""One-line reports of errors raised by other code."""

import importlib

import pytest
import tensorflow as tf

from tfx_perf.core import errors


def raised(keras, *, is_nested):
    class Bad(keras.layers.Layer):
        def call(self, inputs):
            raise ValueError("Bad wants 7 features and got 1")

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.bad = Bad()

        def call(self, inputs):
            return self.bad(inputs)

    model = Model() if is_nested else keras.Sequential([Bad()])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="7 features") as caught:
        model.fit(tf.ones((4, 2)), tf.ones((4, 1)), verbose=0)
    return caught.value


@pytest.mark.each_choice
@pytest.mark.parametrize("is_nested", [True, False])
@pytest.mark.parametrize("package", ["keras", "tf_keras"])
def test_the_error_of_a_layer_is_named_and_not_the_surrounding_call(package, is_nested):
    error = raised(importlib.import_module(package), is_nested=is_nested)
    assert errors.in_one_line(error) == "ValueError: Bad wants 7 features and got 1"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (KeyError("the key"), "KeyError: 'the key'"),
        (ValueError(), "ValueError"),
        (RuntimeError("one\ntwo"), "RuntimeError: one"),
        (RuntimeError("Graph execution error:\n\nno memory"), "RuntimeError: no memory"),
        (ValueError("in user code:\n\n    x = 1\n\n    AssertionError: \n"), "AssertionError"),
        (ValueError("in user code:\n\n    x = 1\n\n    KeyError: a: b\n"), "KeyError: a: b"),
    ],
)
def test_the_line_that_tells_most_is_taken(error, line):
    assert errors.in_one_line(error) == line


@pytest.mark.parametrize(("name", "module"), [("errors", "errors"), ("quiet", "console")])
def test_projects_of_earlier_templates_find_modules_by_their_old_names(name, module):
    found = getattr(importlib.import_module("tfx_perf"), name)
    assert found is importlib.import_module(f"tfx_perf.core.{module}")
