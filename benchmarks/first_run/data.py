"""Examples for the trainings that have no data of their own."""

import pathlib

import numpy as np
import tensorflow as tf

NUMBERS, CATEGORIES, WORDS, PIXELS = 64, 6, 64, 784
CATEGORY_COUNT, ID_COUNT, WORD_COUNT = 1000, 20_000, 5000
LABEL = "label"

_ROWS = {"train": 15_000, "eval": 1500}
_FILES = 4


def write(folder: pathlib.Path, model: str) -> None:
    """Writes the splits as files that ImportExampleGen reads, unless the folder exists.

    Args:
        folder: of the splits.
        model: a name in `user_module.MODELS`; the examples have the features that it reads.
    """
    if folder.exists():
        return
    draft = folder.with_name(f"{folder.name}.draft")
    generator = np.random.default_rng(1)
    for split, count in _ROWS.items():
        place = draft / split
        place.mkdir(parents=True)
        for number in range(_FILES):
            path = str(place / f"part-{number:05d}-of-{_FILES:05d}.gz")
            with tf.io.TFRecordWriter(path, "GZIP") as writer:
                for _ in range(count // _FILES):
                    writer.write(_example(generator, model).SerializeToString())
    draft.rename(folder)


def _example(generator: np.random.Generator, model: str) -> tf.train.Example:
    label = int(generator.integers(2))
    columns: dict[str, np.ndarray] = {}
    if model == "cnn":
        columns["pixels"] = generator.random(PIXELS, "float32") + 0.2 * label
    elif model == "lstm":
        columns["words"] = generator.integers(WORD_COUNT // (1 + label), size=WORDS)
    elif model == "embeddings":
        columns["user"] = generator.integers(ID_COUNT // (1 + label), size=1)
        columns["item"] = generator.integers(ID_COUNT // (1 + label), size=1)
    else:
        columns["numbers"] = generator.normal(0.2 * label, size=NUMBERS)
    if model == "wide_deep":
        columns["categories"] = generator.integers(CATEGORY_COUNT // (1 + label), size=CATEGORIES)
    features = {name: _feature(values) for name, values in columns.items()}
    features[LABEL] = _feature(np.array([label]))
    return tf.train.Example(features=tf.train.Features(feature=features))


def _feature(values: np.ndarray) -> tf.train.Feature:
    if values.dtype.kind == "i":
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))
