"""InputTuner's wiring and its executor on artifacts in temporary folders."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2, statistics_pb2
from tensorflow_transform.tf_metadata import dataset_metadata, metadata_io
from tfx import types as tfx_types
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_artifacts
from tfx_bsl.tfxio import dataset_options

from tfx_perf import config, errors, metrics
from tfx_perf.components import types
from tfx_perf.components.input_tuner import component, executor, sources
from tfx_perf.input import measure
from tfx_perf.input.record import TuningRecord

_SCHEMA = """
    feature { name: "number_xf" type: INT presence { min_fraction: 1 } shape { dim { size: 1 } } }
    feature { name: "label_xf" type: INT presence { min_fraction: 1 } shape { dim { size: 1 } } }
"""
_COUNT = 100


@pytest.fixture
def examples(tmp_path: pathlib.Path) -> standard_artifacts.Examples:
    """Transformed examples with a full `train` and an empty `eval` split."""
    item = standard_artifacts.Examples()
    item.uri = str(tmp_path / "examples")
    item.split_names = artifact_utils.encode_split_names(["train", "eval"])
    folder = pathlib.Path(item.uri) / "Split-train"
    folder.mkdir(parents=True)
    with tf.io.TFRecordWriter(str(folder / "part-00000-of-00001.gz"), "GZIP") as writer:
        for number in range(_COUNT):
            feature = {
                "number_xf": tf.train.Feature(int64_list=tf.train.Int64List(value=[number])),
                "label_xf": tf.train.Feature(int64_list=tf.train.Int64List(value=[number % 2])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
    return item


@pytest.fixture
def schema(tmp_path: pathlib.Path) -> standard_artifacts.Schema:
    item = standard_artifacts.Schema()
    item.uri = str(tmp_path / "schema")
    pathlib.Path(item.uri).mkdir()
    (pathlib.Path(item.uri) / "schema.pbtxt").write_text(_SCHEMA)
    return item


@pytest.fixture
def transform_graph(tmp_path: pathlib.Path) -> standard_artifacts.TransformGraph:
    item = standard_artifacts.TransformGraph()
    item.uri = str(tmp_path / "transform_graph")
    proto = text_format.Parse(_SCHEMA, schema_pb2.Schema())
    metadata_io.write_metadata(
        dataset_metadata.DatasetMetadata(proto), f"{item.uri}/transformed_metadata"
    )
    return item


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    monkeypatch.setattr(measure, "_BLOCK_SECONDS", 0.05)
    monkeypatch.setattr(measure, "_WARM_UP_SECONDS", 0.02)


def run(tmp_path, inputs, *, split="train", label_key="label_xf", **settings):
    plan = types.InputPlan()
    plan.uri = str(tmp_path / "plan")
    settings = {"batch_size": 16, "time_budget_seconds": 30, **settings}
    executor.Executor().Do(
        {key: [value] for key, value in inputs.items()},
        {"input_plan": [plan]},
        {
            "config": config.PerfConfig.from_dict({"input": settings}).to_json(),
            "split": split,
            "label_key": label_key,
        },
    )
    return plan


def test_publishes_a_plan_that_the_trainer_can_apply(examples, transform_graph, tmp_path):
    plan = run(tmp_path, {"examples": examples, "transform_graph": transform_graph})
    record = TuningRecord.read(pathlib.Path(plan.uri) / "plan.json")
    assert record.example_count == _COUNT
    assert [outcome.name for outcome in record.outcomes] == [
        "default", "columns", "block_reader", "serialized_cache",
    ]  # fmt: skip
    assert all(outcome.status != "dropped" for outcome in record.outcomes), record.outcomes
    assert "<svg" in (pathlib.Path(plan.uri) / "report.html").read_text()
    assert plan.get_string_custom_property("chosen_candidate") == record.chosen
    for key, value in metrics.checked(record.figures()).items():
        assert plan.get_float_custom_property(key) == value

    proto = sources.read_schema(transform_graph=[transform_graph], schema=None)
    options = dataset_options.TensorFlowDatasetOptions(
        batch_size=8, label_key="label_xf", num_epochs=1
    )
    for name in ("default", "columns", "block_reader", "serialized_cache"):
        factory = sources.plan_factory([examples], record.model_copy(update={"chosen": name}))
        batches = list(factory([f"{examples.uri}/Split-train/*"], options, proto))
        numbers = np.concatenate([features["number_xf"] for features, _ in batches]).ravel()
        labels = np.concatenate([label for _, label in batches]).ravel()
        assert sorted(numbers) == list(range(_COUNT))
        np.testing.assert_array_equal(labels, numbers % 2)


def test_takes_the_count_of_large_data_from_statistics(examples, schema, tmp_path):
    statistics = standard_artifacts.ExampleStatistics()
    statistics.uri = str(tmp_path / "statistics")
    statistics.split_names = artifact_utils.encode_split_names(["train"])
    folder = pathlib.Path(artifact_utils.get_split_uri([statistics], "train"))
    folder.mkdir(parents=True)
    proto = statistics_pb2.DatasetFeatureStatisticsList()
    proto.datasets.add().num_examples = 12345
    (folder / "FeatureStats.pb").write_bytes(proto.SerializeToString())
    # No time to read an epoch, so that nothing is counted.
    plan = run(
        tmp_path,
        {"examples": examples, "schema": schema, "statistics": statistics},
        time_budget_seconds=1e-6,
    )
    document = json.loads((pathlib.Path(plan.uri) / "plan.json").read_text())
    assert document["example_count"] == 12345
    assert document["chosen"] == "default"


def test_records_that_are_not_tf_examples_have_no_parser(examples):
    proto = text_format.Parse(_SCHEMA, schema_pb2.Schema())
    arguments = {"split": "train", "schema": proto, "batch_size": 8, "label_key": None}
    assert sources.record_source([examples], **arguments).parse is not None
    examples.set_string_custom_property(
        "payload_format",
        example_gen_pb2.PayloadFormat.Name(example_gen_pb2.FORMAT_TF_SEQUENCE_EXAMPLE),
    )
    assert sources.record_source([examples], **arguments).parse is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": "test"}, r"splits \['train', 'eval'\]. Received: split='test'"),
        ({"split": "eval"}, "Expected files of examples. Received: split='eval'"),
        ({"label_key": "label"}, "Received: label_key='label'"),
    ],
)
def test_bad_input(settings, message, examples, schema, tmp_path):
    with pytest.raises(errors.UserError, match=message) as caught:
        run(tmp_path, {"examples": examples, "schema": schema}, **settings)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "plan").exists()


def test_no_schema(examples, tmp_path):
    with pytest.raises(errors.UserError, match="Expected a schema"):
        run(tmp_path, {"examples": examples})


def test_wiring():
    tuner = component.InputTuner(
        examples=tfx_types.Channel(type=standard_artifacts.Examples),
        transform_graph=tfx_types.Channel(type=standard_artifacts.TransformGraph),
        label_key="label_xf",
        config={"input": {"batch_size": 64}},
    )
    assert tuner.outputs["input_plan"].type is types.InputPlan
    assert set(tuner.inputs) == {"examples", "transform_graph"}
    assert tuner.exec_properties["split"] == "train"
    assert tuner.exec_properties["label_key"] == "label_xf"
    parsed = config.PerfConfig.from_json(tuner.exec_properties["config"])
    assert parsed.input.batch_size == 64


def test_wrong_setting_is_refused_when_the_pipeline_is_written():
    with pytest.raises(errors.UserError, match="batchsize"):
        component.InputTuner(
            examples=tfx_types.Channel(type=standard_artifacts.Examples),
            config={"input": {"batchsize": 64}},
        )
