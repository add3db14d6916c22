"""The data of the cases. Every row has its number as its first feature."""

import itertools
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from .cases import BATCH_SIZE, CLASSES, Case

SOURCES = ("tensors", "interleave", "generator", "once", "python", "records", "arrays")
ORDERS = ("as_is", "seeded", "fixed", "small", "unseeded")
STAGES = ("cache", "cache_batches", "random", "parallel", "unknown", "prefetch", "prefetch_all")
VALIDATIONS = ("", "arrays", "dataset", "shuffled", "endless")


def rows(case: Case, *, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    features = random.normal(size=(count, 4)).astype("float32")
    x = np.concatenate([np.arange(count, dtype="float32")[:, None], features], axis=1)
    if case.classifies:
        return x, random.integers(0, CLASSES, size=(count, 1)).astype("int64")
    return x, features[:, :1] * 0.5 + 0.1 * random.normal(size=(count, 1)).astype("float32")


def training_data(case: Case, folder: pathlib.Path, event: Any) -> dict[str, Any]:
    """Returns the arguments of `fit` that are data.

    Args:
        case: the case.
        folder: for files.
        event: `Event` of the interruption; is asked for every row that is read.
    """
    count = case.steps * BATCH_SIZE - (3 if case.is_uneven else 0)
    x, y = rows(case, count=count)
    x = event.spoiled(x)
    if case.source == "arrays":
        return {"x": x, "y": targets_of(case, y), "batch_size": BATCH_SIZE, "shuffle": False}
    data = _source(case, x, y, folder, event)
    stages = case.stages
    if "cache" in stages:
        data = data.cache()
    if "random" in stages:
        noise = lambda a, b: (a + tf.random.uniform([5], 0, [0, 1, 1, 1, 1], seed=9), b)  # noqa: E731
        data = data.map(noise)
    if case.order != "as_is":
        size = 5 if case.order == "small" else count
        fixed = {"reshuffle_each_iteration": False} if case.order == "fixed" else {}
        data = data.shuffle(size, seed=None if case.order == "unseeded" else 7, **fixed)
    parallel = {"num_parallel_calls": 2} if "parallel" in stages else {}
    data = data.map(lambda a, b: _element(case, a, b), **parallel)
    if "unknown" in stages:
        data = data.filter(lambda *_: True)
    data = data.batch(BATCH_SIZE)
    if case.model in ("ragged", "sparse"):
        data = data.map(lambda x, *rest: (_with_words(case, x), *rest))
    if "cache_batches" in stages:
        data = data.cache()
    if case.is_endless and case.source != "once":
        data = data.repeat()
    if "prefetch" in stages:
        data = data.prefetch(2)
    if "prefetch_all" in stages:
        data = data.prefetch(100)
    return {"x": _without_autotune(data)}


def _source(case: Case, x: np.ndarray, y: np.ndarray, folder: pathlib.Path, event: Any) -> Any:
    specs = tf.TensorSpec((5,), tf.float32), tf.TensorSpec((1,), y.dtype)
    data = tf.data.Dataset.from_tensor_slices((x, y))
    if case.source == "interleave":
        whole = data
        data = tf.data.Dataset.range(3).interleave(
            lambda index: whole.shard(3, index), cycle_length=2, num_parallel_calls=2
        )
        data = data.apply(tf.data.experimental.assert_cardinality(len(x)))
    if case.source == "generator":
        data = tf.data.Dataset.from_generator(
            lambda: zip(x, y, strict=True), output_signature=specs
        )
    if case.source == "once":
        stream = itertools.cycle(zip(x, y, strict=True))

        def go_on() -> Iterator[Any]:  # where the one before has ended
            return stream

        data = tf.data.Dataset.from_generator(go_on, output_signature=specs)
    if case.source == "python" or event.is_in_data:
        ensure = lambda a, b: (tf.ensure_shape(a, [5]), tf.ensure_shape(b, [1]))  # noqa: E731
        types = tf.float32, y.dtype
        data = data.map(lambda a, b: ensure(*tf.numpy_function(event.read, [a, b], types)))
    if case.source == "records":
        file = folder / "records"
        with tf.io.TFRecordWriter(str(file)) as writer:
            for features, target in zip(x, y, strict=True):
                writer.write(features.tobytes() + target.tobytes())
        data = tf.data.TFRecordDataset([str(file)]).map(
            lambda text: (
                tf.ensure_shape(tf.io.decode_raw(tf.strings.substr(text, 0, 20), tf.float32), [5]),
                tf.ensure_shape(tf.io.decode_raw(tf.strings.substr(text, 20, -1), y.dtype), [1]),
            )
        )
    return data


def _element(case: Case, x: Any, y: Any) -> tuple[Any, ...]:
    target = targets_of(case, y)
    if case.weights != "sample":
        return x, target
    return x, target, 0.5 + x[0] % 3


def targets_of(case: Case, y: Any) -> Any:
    """Returns the targets as the case's model takes them."""
    if case.model != "outputs":
        return y
    kind = (y > 0) if isinstance(y, np.ndarray) else tf.greater(y, 0)
    kind = kind.astype("int64") if isinstance(y, np.ndarray) else tf.cast(kind, tf.int64)
    return {"value": y, "kind": kind}


def _with_words(case: Case, x: Any) -> dict[str, Any]:
    lengths = 1 + tf.cast(x[:, 0], tf.int64) % 3
    words = tf.RaggedTensor.from_row_lengths(tf.range(tf.reduce_sum(lengths)) % 10, lengths)
    if case.model == "sparse":
        indices = tf.stack([words.value_rowids(), words.flat_values], axis=1)
        values = tf.ones(tf.shape(indices)[:1])
        shape = tf.stack([words.nrows(), 10])
        return {"row": x, "words": tf.sparse.reorder(tf.SparseTensor(indices, values, shape))}
    return {"row": x, "words": words}


def validation_arguments(case: Case) -> dict[str, Any]:
    if not case.validation:
        return {}
    x, y = rows(case, count=2 * BATCH_SIZE + 3, seed=1)
    has_words = case.model in ("ragged", "sparse")
    if case.validation == "arrays" and not has_words:
        given: Any = (x, targets_of(case, y))
    else:
        data = tf.data.Dataset.from_tensor_slices((x, targets_of(case, y)))
        if case.validation == "shuffled":
            data = data.shuffle(20, seed=3)
        data = data.batch(BATCH_SIZE)
        if has_words:
            data = data.map(lambda x, y: (_with_words(case, x), y))
        given = _without_autotune(data.repeat() if case.validation == "endless" else data)
    return {
        "validation_data": given,
        "validation_steps": case.validation_steps,
        "validation_freq": case.validation_freq,
    }


def _without_autotune(data: Any) -> Any:
    options = tf.data.Options()
    options.autotune.enabled = False  # its thread can delay the end of every fit
    return data.with_options(options)
