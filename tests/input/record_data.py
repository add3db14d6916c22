"""Examples with a dense, a string, a variable-length and a label feature."""

import pathlib

import tensorflow as tf

SCHEMA = """
    feature { name: "number" type: INT presence { min_fraction: 1 } shape { dim { size: 1 } } }
    feature { name: "pair" type: FLOAT presence { min_fraction: 1 } shape { dim { size: 2 } } }
    feature { name: "city" type: BYTES presence { min_fraction: 1 } shape {} }
    feature { name: "label" type: INT presence { min_fraction: 1 } shape { dim { size: 1 } } }
"""
SPARSE_SCHEMA = SCHEMA + 'feature { name: "words" type: BYTES }'
RAGGED_SCHEMA = (
    SPARSE_SCHEMA
    + """
    represent_variable_length_as_ragged: true
"""
)


def write_records(folder: pathlib.Path, *, count: int, files: int) -> None:
    """Writes `count` examples, numbered from 0 on, into `files` gzip files."""
    for index in range(files):
        path = f"{folder}/examples-{index:05d}-of-{files:05d}.gz"
        with tf.io.TFRecordWriter(path, "GZIP") as writer:
            for number in range(index, count, files):
                writer.write(_example(number).SerializeToString())


def _example(number: int) -> tf.train.Example:
    words = [f"word{n}".encode() for n in range(number % 4)]
    features = {
        "number": tf.train.Feature(int64_list=tf.train.Int64List(value=[number])),
        "pair": tf.train.Feature(float_list=tf.train.FloatList(value=[number / 8, -number])),
        "city": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"city%d" % (number % 7)])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[number % 2])),
        "words": tf.train.Feature(bytes_list=tf.train.BytesList(value=words)),
    }
    return tf.train.Example(features=tf.train.Features(feature=features))
