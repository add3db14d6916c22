"""Every kind of record that TFX gives a trainer is parsed (`parsers`) as TFXIO parses it."""

import pathlib

import pytest
import tensorflow as tf
import tfx
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.components.experimental.data_view import constants
from tfx.components.util import examples_utils
from tfx.proto import example_gen_pb2
from tfx.types import artifact_utils, standard_artifacts
from tfx_bsl.coders import tf_graph_record_decoder

from tfx_perf.components import examples as examples_lib
from tfx_perf.core import errors
from tfx_perf.input import candidates, equivalence
from tfx_perf.input.candidates import candidate, limits

pytestmark = pytest.mark.each_choice

TESTDATA = pathlib.Path(tfx.__file__).parent / "components" / "testdata"
NAMES = ("columns", "block_reader")
AMPLE = limits.Limits(memory_bytes=2**30)

# Renamed, with a default, from several columns, nested; `plain` and `extra` are inferred.
REPRESENTATIONS = """
    feature { name: "plain" type: INT presence { min_fraction: 1 } shape { dim { size: 1 } } }
    feature { name: "price" type: FLOAT }
    feature { name: "place" type: INT }
    feature { name: "amount" type: FLOAT }
    feature { name: "tags" type: BYTES }
    feature { name: "word" type: BYTES }
    feature { name: "lengths" type: INT }
    feature { name: "extra" type: INT }
    feature { name: "old" type: INT lifecycle_stage: DEPRECATED }
    tensor_representation_group { key: "" value {
        tensor_representation { key: "renamed" value { dense_tensor {
            column_name: "price" shape { dim { size: 2 } } default_value { float_value: -1 } } } }
        tensor_representation { key: "amounts" value { sparse_tensor {
            value_column_name: "amount" index_column_names: "place" dense_shape { dim { size: 9 } }
        } } }
        tensor_representation { key: "labels" value { varlen_sparse_tensor {
            column_name: "tags" } } }
        tensor_representation { key: "word" value { ragged_tensor {
            feature_path { step: "word" } partition { row_length: "lengths" } } } }
    } }
"""
RAGGED = """
    feature { name: "plain" type: INT presence { min_fraction: 1 } shape { dim { size: 1 } } }
    feature { name: "tags" type: BYTES }
    represent_variable_length_as_ragged: true
"""


class RowPerRecord(tf_graph_record_decoder.TFGraphRecordDecoder):
    """Yields the bytes of a record and their number."""

    def decode_record(self, records):
        return {
            "bytes": tf.strings.bytes_split(records),
            "length": tf.strings.length(records)[:, tf.newaxis],
        }


class RowPerByte(tf_graph_record_decoder.TFGraphRecordDecoder):
    """Yields a row for each byte of a record."""

    @property
    def record_index_tensor_name(self):
        return "index"

    def decode_record(self, records):
        split = tf.strings.bytes_split(records)
        index = tf.sparse.from_dense(1 + split.value_rowids()[:, tf.newaxis])
        return {"byte": split.values, "index": index}


def artifact(uri, payload):
    item = standard_artifacts.Examples()
    item.uri = str(uri)
    item.split_names = artifact_utils.encode_split_names(["train"])
    examples_utils.set_payload_format(item, payload)
    return item


def written(folder, records, payload):
    (folder / "Split-train").mkdir(parents=True)
    for index in range(3):
        with tf.io.TFRecordWriter(f"{folder}/Split-train/data-{index}.gz", "GZIP") as writer:
            for item in records[index::3]:
                writer.write(item)
    return artifact(folder, payload)


def examples(folder):
    def value(number):
        lists = {
            "plain": [number],
            "price": [number / 8, -number] if number % 3 else [],
            "place": sorted({number % 9, (number + 4) % 9}),
            "tags": [b"\xff%d" % n for n in range(number % 4)],
            "word": [b"a%d" % n for n in range(number % 5)],
            "lengths": [number % 2, number % 5 - number % 2] if number % 5 > 1 else [number % 5],
            "extra": [7] * (number % 2),
        }
        lists["amount"] = [float(place) for place in lists["place"]]
        features = tf.train.Features()
        for name, values in lists.items():
            if not values:
                continue
            feature = features.feature[name]
            if isinstance(values[0], bytes):
                feature.bytes_list.value.extend(values)
            elif isinstance(values[0], float):
                feature.float_list.value.extend(values)
            else:
                feature.int64_list.value.extend(values)
        return tf.train.Example(features=features).SerializeToString()

    return written(
        folder, [value(n) for n in range(200)], example_gen_pb2.PayloadFormat.FORMAT_TF_EXAMPLE
    )


def viewed(folder, decoder):
    records = [b"x" * (number % 5) + b"%d" % number for number in range(100)]
    item = written(folder / "data", records, example_gen_pb2.PayloadFormat.FORMAT_PROTO)
    decoder.save(str(folder / "view"))
    item.set_string_custom_property(constants.DATA_VIEW_URI_PROPERTY_KEY, str(folder / "view"))
    item.set_string_custom_property(constants.DATA_VIEW_CREATE_TIME_KEY, "1")
    return item


def parsed(text):
    return text_format.Parse(text, schema_pb2.Schema())


@pytest.fixture(scope="module", params=["representations", "ragged", "sequence", "data view"])
def case(request, tmp_path_factory):
    """Examples of one kind, their schema, and one of the features."""
    tmp_path = tmp_path_factory.mktemp("case")
    if request.param == "representations":
        return examples(tmp_path / "data"), parsed(REPRESENTATIONS), "renamed"
    if request.param == "ragged":
        return examples(tmp_path / "data"), parsed(RAGGED), "tags"
    if request.param == "sequence":
        schema = parsed((TESTDATA / "schema_gen_sequence" / "schema.pbtxt").read_text())
        payload = example_gen_pb2.PayloadFormat.FORMAT_TF_SEQUENCE_EXAMPLE
        return artifact(TESTDATA / "tfrecord_sequence", payload), schema, "seq_s"
    return viewed(tmp_path, RowPerRecord()), None, "length"


def source_of(item, schema, label_key=None, **options):
    found = examples_lib.record_source(
        [item], split="train", schema=schema, batch_size=16, label_key=label_key
    )
    return found.replace_options(**options)


@pytest.fixture(scope="module", params=[False, True], ids=["unlabeled", "labeled"])
def sources_of_case(request, case):
    """The case's source for one epoch, the endless one, and the digest of its default examples."""
    item, schema, feature = case
    source = source_of(item, schema, feature if request.param else None, num_epochs=1)
    digest = equivalence.prefix(source.default()).digest
    return source, source.replace_options(num_epochs=None), digest


@pytest.mark.one_case
@pytest.mark.parametrize("name", NAMES)
def test_every_candidate_yields_the_defaults_examples(name, sources_of_case):
    source, endless, expected = sources_of_case
    build = candidates.make(name).build
    try:
        found = build(source, limits=AMPLE)
    except candidate.NotApplicable as refusal:
        assert name == "columns"
        assert "sparse" in str(refusal)
        return
    assert found.element_spec == source.element_spec
    assert equivalence.prefix(found).digest == expected
    if name == "columns" and source.schema is None:
        return  # it knows the number of rows of a batch, which a data view's decoder loses
    assert build(endless, limits=AMPLE).element_spec == endless.element_spec


def test_rows_that_are_not_records_are_left_to_tfxio(tmp_path):
    source = source_of(viewed(tmp_path, RowPerByte()), None)
    assert source.parse is None
    with pytest.raises(candidate.NotApplicable):
        candidates.make("block_reader").build(source, limits=AMPLE)


def test_a_data_view_needs_no_schema(tmp_path):
    item = viewed(tmp_path, RowPerRecord())
    obstacle = examples_lib.reading_obstacle({"examples": [item]}, split="train")
    assert "nor schema" not in (obstacle or "")
    others = {"examples": [examples(tmp_path / "more")]}
    assert "nor schema" in examples_lib.reading_obstacle(others, split="train")


@pytest.mark.parametrize(
    ("payload", "schema"),
    [
        ("FORMAT_PROTO", None),  # no data view
        ("FORMAT_TF_SEQUENCE_EXAMPLE", schema_pb2.Schema()),  # no representations
        ("FORMAT_PARQUET", schema_pb2.Schema()),
    ],
)
def test_records_that_tfxio_cannot_read_are_refused_in_one_line(payload, schema, tmp_path):
    item = written(tmp_path / "data", [b"record"], example_gen_pb2.PayloadFormat.Value(payload))
    with pytest.raises(errors.UserError, match="TFXIO's dataset factory can read") as caught:
        source_of(item, schema)
    assert "\n" not in str(caught.value)


def test_label_is_a_tensor_not_a_column(tmp_path):
    item = examples(tmp_path)
    assert source_of(item, parsed(REPRESENTATIONS), "renamed").options.label_key == "renamed"
    with pytest.raises(errors.UserError, match="Received: label_key='price'"):
        source_of(item, parsed(REPRESENTATIONS), "price")
