"""Examples with a dense, a string, a variable-length and a label feature."""

import pathlib

import tensorflow as tf
from tfx_bsl.tfxio import dataset_options, dataset_util

from tfx_perf.input.candidates import source

SCHEMA = """
    feature { name: "number" type: INT presence { min_fraction: 1 } shape { dim { size: 1 } } }
    feature { name: "pair" type: FLOAT presence { min_fraction: 1 } shape { dim { size: 2 } } }
    feature { name: "city" type: BYTES presence { min_fraction: 1 } shape {} }
    feature { name: "label" type: INT presence { min_fraction: 1 } shape { dim { size: 1 } } }
"""
SPARSE_SCHEMA = SCHEMA + 'feature { name: "words" type: BYTES }'
MANY_KINDS_SCHEMA = SPARSE_SCHEMA + """
    feature { name: "counts" type: INT }
    feature { name: "weights" type: FLOAT }
"""
PLACED_SCHEMA = SCHEMA + """
    feature { name: "places" type: INT int_domain { min: 0 max: 9 } }
    feature { name: "values" type: FLOAT }
    sparse_feature {
        name: "placed" index_feature { name: "places" } value_feature { name: "values" }
    }
"""
RAGGED_SCHEMA = SPARSE_SCHEMA + "represent_variable_length_as_ragged: true"


def write_records(folder: pathlib.Path, *, count: int, files: int) -> None:
    """Writes `count` examples, numbered from 0 on, into `files` gzip files."""
    for index in range(files):
        path = f"{folder}/examples-{index:05d}-of-{files:05d}.gz"
        with tf.io.TFRecordWriter(path, "GZIP") as writer:
            for number in range(index, count, files):
                writer.write(example(number))


def example(number: int, **changes: tf.train.Feature | None) -> bytes:
    """Returns a serialized example; `changes` replaces features, None leaves one out."""
    features = {
        "number": integers(number),
        "pair": floats(number / 8, -number),
        "city": strings(b"city%d" % (number % 7)),
        "label": integers(number % 2),
        "words": strings(*(b"word%d" % n for n in range(number % 4))),
        "counts": integers(*range(number % 3)),
        "weights": floats(*[0.5] * (number % 5)),
        "places": integers(*[1, 7][: number % 3]),
        "values": floats(*[2.5, 3][: number % 3]),
        **changes,
    }
    present = {name: value for name, value in features.items() if value is not None}
    return tf.train.Example(features=tf.train.Features(feature=present)).SerializeToString()


def strings(*values: bytes) -> tf.train.Feature:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def integers(*values: int) -> tf.train.Feature:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def floats(*values: float) -> tf.train.Feature:
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def plain_source(folder: pathlib.Path, **options) -> source.RecordSource:
    """Returns a source over `write_records`' files that other processes can make too."""
    spec = {
        "number": tf.io.FixedLenFeature([1], tf.int64),
        "pair": tf.io.FixedLenFeature([2], tf.float32),
        "label": tf.io.FixedLenFeature([1], tf.int64),
    }

    def parse(serialized):
        features = tf.io.parse_example(serialized, spec)
        return features, features.pop("label")

    def factory(patterns, options, schema):
        records = dataset_util.make_tf_record_dataset(
            patterns, options.batch_size, options.drop_final_batch, options.num_epochs,
            options.shuffle, options.shuffle_buffer_size, options.shuffle_seed,
        )  # fmt: skip
        return records.map(parse)

    return source.RecordSource(
        file_patterns=(f"{folder}/*",),
        default_factory=factory,
        options=dataset_options.TensorFlowDatasetOptions(
            **{"batch_size": 16, "label_key": "label", **options}
        ),
        parse=parse,
    )
