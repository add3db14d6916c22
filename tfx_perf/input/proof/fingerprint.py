"""Whether two datasets hold the same examples, in whatever order and batching."""

import dataclasses
import math
import time
from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.hardware import host
from tfx_perf.tf_internals import datasets


@dataclasses.dataclass(frozen=True)
class Digest:
    """A multiset of examples in constant space.

    The 64-bit fingerprints of the examples added up modulo 2^64 (Clarke et al., "Incremental
    Multiset Hash Functions", 2003: an additive multiset hash), and their number. It finds lost,
    doubled and changed examples; it is no defence against an adversary.
    """

    count: int
    total: int


@dataclasses.dataclass(frozen=True, eq=False)
class Prefix:
    """The examples in a dataset's first batches, by their fingerprints.

    Attributes:
        fingerprints: int64, shape [number of examples], in the dataset's order.
        batches: how many batches they are.
        complete: whether the dataset ended within them.
    """

    fingerprints: np.ndarray
    batches: int
    complete: bool

    @property
    def digest(self) -> Digest:
        """The same examples as a multiset."""
        total = self.fingerprints.sum(dtype=np.int64)  # wraps around, as it must
        return Digest(self.fingerprints.size, int(total))


def digest(dataset: tf.data.Dataset) -> Digest:
    """Returns the digest of a finite dataset of batches."""
    return prefix(dataset).digest


def prefix(dataset: tf.data.Dataset, *, seconds: float = math.inf) -> Prefix:
    """Returns as many batches as can be read in `seconds`, at least one.

    Args:
        dataset: of batches, see `of_batches`.
        seconds: time for all but the first batch.
    """
    return read(of_batches(dataset), seconds=seconds)


def of_batches(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the examples' fingerprints, int64 of shape [batch], in place of the batches.

    Args:
        dataset: of features in a dictionary, or of them and labels.
    """
    return datasets.mapped(
        dataset,
        lambda *batch: _of_examples(batch),
        num_parallel_calls=host.cpu_count(),
        deterministic=True,
    )


def of_first_batch(dataset: tf.data.Dataset) -> Prefix:
    """Returns what `prefix` does of the first batch, if there is one.

    Thousands of features take seconds to trace and have it read by tf.data; it is done here
    without a graph.
    """
    for batch in datasets.without_autotune(dataset.take(1)):
        parts = batch if isinstance(batch, tuple) else (batch,)
        return Prefix(_of_examples(parts).numpy(), batches=1, complete=True)
    return Prefix(np.empty(0, np.int64), batches=0, complete=True)


def read(fingerprints: tf.data.Dataset, *, seconds: float = math.inf) -> Prefix:
    """Reads what `of_batches` returned, as `prefix` does; it can be read several times."""
    deadline = time.monotonic() + seconds
    found = [np.empty(0, np.int64)]
    complete = True
    for batch in fingerprints.as_numpy_iterator():
        if len(found) > 1 and time.monotonic() > deadline:
            complete = False
            break
        found.append(batch)
    return Prefix(np.concatenate(found), len(found) - 1, complete)


def _of_examples(batch: tuple[Any, ...]) -> tf.Tensor:
    """Returns one int64 fingerprint an example, shape [batch]."""
    parts = [_of_component(part) for part in tf.nest.flatten(batch)]
    return _as_integers(tf.fingerprint(tf.stack(parts, axis=1)))


def _of_component(value: Any) -> tf.Tensor:
    """Returns one int64 fingerprint a row of a tensor of any kind, shape [batch]."""
    if isinstance(value, tf.RaggedTensor):
        value = value.to_sparse()
    if isinstance(value, tf.Tensor) and value.shape[1:].num_elements() == 0:
        return tf.zeros(tf.shape(value)[:1], tf.int64)  # of no strings the op makes random numbers
    if not isinstance(value, tf.SparseTensor):
        return _as_integers(tf.fingerprint(tf.reshape(value, [tf.shape(value)[0], -1])))
    # Each value with its place in the row; padding, which depends on the batch, is left out.
    values = _as_integers(tf.fingerprint(value.values[:, tf.newaxis]))
    cells = tf.concat([values[:, tf.newaxis], value.indices[:, 1:]], axis=1)
    return tf.math.unsorted_segment_sum(
        _as_integers(tf.fingerprint(cells)), value.indices[:, 0], value.dense_shape[0]
    )


def _as_integers(fingerprints: tf.Tensor) -> tf.Tensor:
    return tf.bitcast(fingerprints, tf.int64)
