"""Capturing the user's own training as the step that the search times."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tuning_cases
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from tfx_perf.components import trainer_args
from tfx_perf.components.input_tuner import training
from tfx_perf.core import errors
from tfx_perf.input import measure

pytestmark = [pytest.mark.each_choice, pytest.mark.usefixtures("quick_traces")]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("inputs")
    return {
        "examples": [tuning_cases.examples_in(folder / "examples")],
        "schema": [tuning_cases.schema_in(folder / "schema")],
    }


@pytest.fixture
def capture(inputs, tmp_path: pathlib.Path, monkeypatch):
    """Captures the training of a module with the given body."""
    for name in ("_BLOCK_SECONDS", "_WARM_UP_SECONDS"):  # the module changes them
        monkeypatch.setattr(measure, name, getattr(measure, name))

    def make(body, *, line="tf_keras"):
        module = tuning_cases.module(tmp_path / "module.py", body, line=line)
        properties = tuning_cases.properties(module_file=module)
        outputs = trainer_args.outputs_in(str(tmp_path / "outputs"))
        arguments = trainer_args.fn_args(inputs, outputs, properties)
        captured = training.CapturedTraining(trainer_args.load_run_fn(properties), arguments)
        captured.prepare()
        return captured

    return make


def recording(calls, default):
    def factory(file_pattern, options, schema):
        calls.append(file_pattern)
        return default(file_pattern, options._replace(shuffle=False), schema)

    return factory


@pytest.mark.parametrize("line", ["keras", "tf_keras"])
def test_learns_the_options_and_trains_on_what_the_code_makes_of_a_factory(capture, line):
    captured = capture(tuning_cases.training(), line=line)
    assert captured.batch_size == 16
    options = captured.options
    assert (options.batch_size, options.shuffle_buffer_size, options.num_epochs) == (16, 77, 2)
    assert options.label_key == "label_xf"
    assert captured.schema == text_format.Parse(tuning_cases.SCHEMA, schema_pb2.Schema())

    calls = []
    data = captured.dataset(recording(calls, captured._default))
    assert [str(pattern).count("Split-train") for pattern in calls] == [1]  # not for evaluation
    batches = list(data.take(2 * 13))  # two epochs, twice, since the dataset is endless
    numbers = np.concatenate([x["number"].numpy().ravel() for x, _ in batches])
    assert sorted(numbers) == sorted([*range(tuning_cases.COUNT)] * 4)

    timed_datasets = {
        "default": measure.TimedDataset(data, captured.consume),
        "repeated": measure.TimedDataset(captured.repeated_batch(), captured.consume),
    }
    samples = measure.measure(timed_datasets, batch_size=16, deadline_seconds=0)
    assert all(taken[0].examples_per_second > 0 for taken in samples.values())


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def run_fn(fn_args): pass", "call Keras' Model.fit"),
        (
            """
def run_fn(fn_args):
    read(fn_args, fn_args.train_files, batch_size=8)
    data = tf.data.Dataset.from_tensors((tf.ones([8, 1]), tf.ones([8, 1])))
    make_model().fit(data)
""",
            "after 1 calls of the factory",
        ),
        (
            "def run_fn(fn_args): make_model().fit(tf.ones([8, 1]), tf.ones([8, 1]))",
            "Expected fit to get a tf.data.Dataset",
        ),
    ],
)
def test_training_that_cannot_be_used(capture, body, message):
    with pytest.raises(errors.UserError, match=message) as caught:
        capture(body)
    assert "\n" not in str(caught.value)


def test_fit_may_train_on_the_second_dataset_the_code_makes(capture):
    captured = capture("""
def run_fn(fn_args):
    first = read(fn_args, fn_args.train_files, batch_size=50)
    data = read(fn_args, fn_args.train_files, batch_size=8)
    data = tf.data.Dataset.zip((data, tf.data.Dataset.counter()))
    data = data.map(lambda element, number: ({"number": element[0]["number_xf"]}, element[1]))
    make_model().fit(data.repeat())
""")
    assert captured.options.batch_size == captured.batch_size == 8
    assert captured.dataset(captured._default).cardinality() == tf.data.INFINITE_CARDINALITY
