"""Fashion-MNIST: pictures as raw bytes, and as PNG that must be decoded."""

import gzip
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.input.workloads import workload
from tfx_perf.core import errors

_FOLDER = pathlib.Path("/usr/share/datasets/fashion-mnist")
_SHAPE = (28, 28, 1)
# Headers of the IDX format: magic number and sizes.
_IMAGE_HEADER_BYTES, _LABEL_HEADER_BYTES = 16, 8


def _raw_tables() -> Iterator[workload.Columns]:
    images = _read("train-images-idx3-ubyte.gz", skip=_IMAGE_HEADER_BYTES)
    labels = _read("train-labels-idx1-ubyte.gz", skip=_LABEL_HEADER_BYTES)
    records = images.reshape(len(labels), -1)
    yield {
        "image": np.array([record.tobytes() for record in records], dtype=object),
        workload.LABEL_KEY: labels.astype(np.int64),
    }


def _png_tables() -> Iterator[workload.Columns]:
    import tensorflow as tf

    for columns in _raw_tables():
        images = tf.data.Dataset.from_tensor_slices(columns["image"].tolist()).map(
            lambda image: tf.io.encode_png(tf.reshape(tf.io.decode_raw(image, tf.uint8), _SHAPE)),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        yield {**columns, "image": np.array(list(images.as_numpy_iterator()), dtype=object)}


def _read(name: str, *, skip: int) -> np.ndarray:
    path = _FOLDER / name
    if not path.exists():
        raise errors.UserError(
            f"Expected Fashion-MNIST. Received: no file {path}. "
            "On Debian and Ubuntu run `apt-get install dataset-fashion-mnist`."
        )
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), np.uint8, offset=skip)


def _decode_raw(features: dict[str, Any], label: Any) -> tuple[dict[str, Any], Any]:
    import tensorflow as tf

    pixels = tf.io.decode_raw(features["image"][:, 0], tf.uint8)
    return {"image": _scaled(tf.reshape(pixels, [-1, *_SHAPE]))}, label


def _decode_png(features: dict[str, Any], label: Any) -> tuple[dict[str, Any], Any]:
    import tensorflow as tf

    images = tf.map_fn(
        lambda image: tf.ensure_shape(tf.io.decode_png(image, channels=1), _SHAPE),
        features["image"][:, 0],
        fn_output_signature=tf.TensorSpec(_SHAPE, tf.uint8),
    )
    return {"image": _scaled(images)}, label


def _scaled(images: Any) -> Any:
    import tensorflow as tf

    return tf.cast(images, tf.float32) / 255


RAW = workload.Workload(
    name="fashion-raw",
    description="Fashion-MNIST, 784 raw bytes each",
    batch_size=256,
    class_count=10,
    tables=_raw_tables,
    decode=_decode_raw,
)
PNG = workload.Workload(
    name="fashion-png",
    description="Fashion-MNIST, PNG-encoded",
    batch_size=256,
    class_count=10,
    tables=_png_tables,
    decode=_decode_png,
)
