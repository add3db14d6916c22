"""A small split of gzip TFRecords and TFXIO's own factory over it."""

import functools
import pathlib

import pytest
import tensorflow as tf
from google.protobuf import text_format
from record_data import SCHEMA, write_records
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.tf_metadata import schema_utils
from tfx_bsl.tfxio import dataset_options, tf_example_record

from tfx_perf.input import candidates, measure
from tfx_perf.input.candidates import limits, source


@pytest.fixture(scope="session")
def split_folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Three gzip files of 230 examples altogether."""
    folder = tmp_path_factory.mktemp("split")
    write_records(folder, count=230, files=3)
    return folder


def _source(folder: pathlib.Path, *, schema: str = SCHEMA, **options) -> source.RecordSource:
    options = {"batch_size": 16, "label_key": "label", **options}
    proto = text_format.Parse(schema, schema_pb2.Schema())
    spec = schema_utils.schema_as_feature_spec(proto).feature_spec

    def factory(patterns, options, schema):
        reader = tf_example_record.TFExampleRecord(
            patterns, schema=schema, telemetry_descriptors=["test"]
        )
        return reader.TensorFlowDataset(options)

    def parse(serialized):
        features = tf.io.parse_example(serialized, spec)
        if options["label_key"] is None:
            return features
        label = features.pop(options["label_key"])
        return features, label

    return source.RecordSource(
        file_patterns=(f"{folder}/*",),
        default_factory=factory,
        options=dataset_options.TensorFlowDatasetOptions(**options),
        schema=proto,
        parse=parse,
    )


@pytest.fixture(scope="session")
def make_source(split_folder):
    """Makes a source over the split; keywords are options, `schema`, and another `folder`.

    Over the split the same arguments give the same source, so that its files are sampled once.
    """
    shared = functools.cache(functools.partial(_source, split_folder))

    def make(*, folder: pathlib.Path | None = None, **settings):
        return _source(folder, **settings) if folder else shared(**settings)

    return make


@pytest.fixture(scope="session")
def once():
    """Calls `function(subject, *arguments)` once for each subject and keeps the result.

    For what several tests only look at; a tf.data graph takes longer to build than to run.
    """
    results = {}

    def call(function, subject, *arguments):
        key = (function, id(subject), *arguments)
        if key not in results:
            results[key] = subject, function(subject, *arguments)  # the subject, to keep its id
        return results[key][1]

    return call


@pytest.fixture(scope="session")
def built(once):
    """Returns a candidate's dataset over a source, for tests that only read it."""

    def build(source, name):
        return candidates.make(name).build(source, limits=limits.Limits(memory_bytes=2**30))

    return lambda name, source: once(build, source, name)


@pytest.fixture
def short_blocks(monkeypatch):
    """Turns of a fifth of their length."""
    monkeypatch.setattr(measure, "_BLOCK_SECONDS", 0.05)
    monkeypatch.setattr(measure, "_WARM_UP_SECONDS", 0.02)
