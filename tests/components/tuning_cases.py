"""Examples, artifacts and training modules for the tests of InputTuner."""

import json
import pathlib

import tensorflow as tf
from gated_project import artifact_in
from tfx.types import artifact_utils, standard_artifacts

from tfx_perf.components import InputTuner
from tfx_perf.config import PerfConfig

COUNT = 100
SCHEMA = """
    feature { name: "number_xf" type: INT presence { min_fraction: 1 } shape { dim { size: 1 } } }
    feature { name: "other_xf" type: FLOAT presence { min_fraction: 1 } shape { dim { size: 1 } } }
    feature { name: "spare_xf" type: FLOAT presence { min_fraction: 1 } shape { dim { size: 1 } } }
    feature { name: "label_xf" type: INT presence { min_fraction: 1 } shape { dim { size: 1 } } }
"""
BEGINNING = """
import os, signal
import tensorflow as tf
import {line} as keras
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.utils import io_utils
from tfx_bsl.public import tfxio
from tfx_perf.input import measure

# Where this runs, the search runs: shorter blocks make it quick.
measure._BLOCK_SECONDS, measure._WARM_UP_SECONDS = 0.02, 0.01

def read(fn_args, files, **options):
    schema = io_utils.parse_pbtxt_file(fn_args.schema_path, schema_pb2.Schema())
    options = tfxio.TensorFlowDatasetOptions(label_key="label_xf", **options)
    return fn_args.data_accessor.tf_dataset_factory(files, options, schema)

def make_model():
    inputs = [keras.Input((1,), name="number")]
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs[0]))
    model.compile(optimizer="sgd", loss="mse")
    return model
"""
TRAINING = """
def prepare(features, label):
    number = tf.cast(features.pop("number_xf"), tf.float32)
    {prepare}
    return {{"number": number, **features}}, label

def run_fn(fn_args):
    evaluation = read(fn_args, fn_args.eval_files, batch_size=50, num_epochs=1)
    data = read(fn_args, fn_args.train_files, batch_size=16, shuffle_buffer_size=77, num_epochs=2)
    make_model().fit(data.map(prepare), epochs=1, validation_data=evaluation, verbose=0)
    raise AssertionError("not reached")
"""


def module(path: pathlib.Path, body: str, *, line: str = "tf_keras") -> str:
    """Writes a training module and returns its path; `body` has `run_fn`.

    It shortens the blocks of `measure` in the process that imports it.
    """
    path.write_text(BEGINNING.format(line=line) + body)
    return str(path)


def training(prepare: str = "pass") -> str:
    """Returns a body that trains on mapped data; `prepare` is a line of the map function."""
    return TRAINING.format(prepare=prepare)


def serialized(**values: float) -> bytes:
    """Returns an example with a value in each feature."""
    example = tf.train.Example()
    for name, value in values.items():
        feature = example.features.feature[name]
        kind = feature.int64_list if isinstance(value, int) else feature.float_list
        kind.value.append(value)
    return example.SerializeToString()


def write_examples(folder: pathlib.Path, *, count: int = COUNT) -> None:
    """Creates `folder` and writes one gzip file into it."""
    folder.mkdir(parents=True)
    with tf.io.TFRecordWriter(str(folder / "part-00000-of-00001.gz"), "GZIP") as writer:
        for number in range(count):
            writer.write(
                serialized(
                    number_xf=number, other_xf=number / 2, spare_xf=number / 2, label_xf=number % 2
                )
            )


def examples_in(folder: pathlib.Path) -> standard_artifacts.Examples:
    """Returns examples with full splits `train` and `eval` and an `empty` one."""
    item = standard_artifacts.Examples()
    item.uri = str(folder)
    item.split_names = artifact_utils.encode_split_names(["train", "eval", "empty"])
    write_examples(folder / "Split-train")
    write_examples(folder / "Split-eval", count=60)
    return item


def schema_in(folder: pathlib.Path) -> standard_artifacts.Schema:
    """Returns the examples' schema as an artifact."""
    item = artifact_in(folder, standard_artifacts.Schema)
    (folder / "schema.pbtxt").write_text(SCHEMA)
    return item


def properties(
    *,
    split: str = "train",
    label_key: str | None = "label_xf",
    run_fn: str | None = None,
    module_file: str | None = None,
    precision: str | None = None,
    excluded_speedups: tuple[str, ...] = (),
    **settings: object,
) -> dict[str, object]:
    """Returns InputTuner's execution properties as TFX gives them to the executor."""
    settings = {"batch_size": None, "tuning_seconds": 20, **settings}
    training = {"precision": precision, "excluded_speedups": excluded_speedups}
    config = PerfConfig.from_dict({"input": settings, "training": training})
    return {
        "config": config.to_json(*InputTuner.SECTIONS),
        "split": split,
        "label_key": label_key,
        "run_fn": run_fn,
        "module_file": module_file,
        "train_args": json.dumps({"num_steps": 10}),
        "eval_args": "{}",
        "custom_config": "null",
    }
