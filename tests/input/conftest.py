"""A small split of gzip TFRecords and TFXIO's own factory over it."""

import pathlib

import pytest
import tensorflow as tf
from google.protobuf import text_format
from record_data import SCHEMA, write_records
from tensorflow_metadata.proto.v0 import schema_pb2
from tensorflow_transform.tf_metadata import schema_utils
from tfx_bsl.tfxio import dataset_options, tf_example_record

from tfx_perf.input import source


@pytest.fixture(scope="session")
def split_folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Three gzip files of 230 examples altogether."""
    folder = tmp_path_factory.mktemp("split")
    write_records(folder, count=230, files=3)
    return folder


@pytest.fixture
def make_source(split_folder):
    """Makes a source over the split; keywords are options, and `schema`."""

    def make(*, schema: str = SCHEMA, folder: pathlib.Path = split_folder, **options):
        options = {"batch_size": 16, "label_key": "label", **options}
        proto = text_format.Parse(schema, schema_pb2.Schema())
        spec = schema_utils.schema_as_feature_spec(proto).feature_spec

        def factory(patterns, options, schema):
            reader = tf_example_record.TFExampleRecord(
                patterns, schema=schema, telemetry_descriptors=["test"]
            )
            return reader.TensorFlowDataset(options)

        def parser(unused):
            used = {name: kind for name, kind in spec.items() if name not in unused}

            def parse(serialized):
                features = tf.io.parse_example(serialized, used)
                if options["label_key"] is None:
                    return features
                label = features.pop(options["label_key"])
                return features, label

            return parse

        return source.RecordSource(
            file_patterns=(f"{folder}/*",),
            default_factory=factory,
            options=dataset_options.TensorFlowDatasetOptions(**options),
            schema=proto,
            parser=parser,
        )

    return make
