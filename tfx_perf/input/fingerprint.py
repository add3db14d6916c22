"""Whether two datasets hold the same examples, in whatever order and batching."""

import dataclasses
import time
from typing import Any

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Digest:
    """A multiset of examples in constant space.

    The 64-bit fingerprints of the examples added up modulo 2^64 (Clarke et al., "Incremental
    Multiset Hash Functions", 2003: an additive multiset hash), and their number. It finds lost,
    doubled and changed examples; it is no defence against an adversary.
    """

    count: int
    total: int


@dataclasses.dataclass(frozen=True)
class Prefix:
    """The digest of a dataset's first batches.

    Attributes:
        digest: of the examples in these batches.
        batches: how many batches they are.
        complete: whether the dataset ended within them.
    """

    digest: Digest
    batches: int
    complete: bool


def digest(dataset: tf.data.Dataset) -> Digest:
    """Returns the digest of a finite dataset of batches."""
    zero = (tf.constant(0, tf.int64), tf.constant(0, tf.int64))

    def add(state: tuple[tf.Tensor, tf.Tensor], batch: Any) -> tuple[tf.Tensor, tf.Tensor]:
        count, total = _of_batch(batch)
        return state[0] + count, state[1] + total

    count, total = dataset.reduce(zero, add)
    return Digest(int(count), int(total))


def prefix(dataset: tf.data.Dataset, *, seconds: float) -> Prefix:
    """Returns the digest of as many batches as can be read in `seconds`, at least one."""
    deadline = time.monotonic() + seconds
    of_batch = tf.function(_of_batch, reduce_retracing=True)
    count, total, batches = 0, 0, 0
    for batch in dataset:
        if batches and time.monotonic() > deadline:
            return Prefix(Digest(count, _wrapped(total)), batches, complete=False)
        batch_count, batch_total = of_batch(batch)
        count, total, batches = count + int(batch_count), total + int(batch_total), batches + 1
    return Prefix(Digest(count, _wrapped(total)), batches, complete=True)


def _wrapped(total: int) -> int:
    """Returns `total` as int64 arithmetic would have it."""
    return (total + 2**63) % 2**64 - 2**63


def _of_batch(batch: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the number of examples and the sum of their fingerprints, both int64 scalars."""
    parts = [_of_component(part) for part in tf.nest.flatten(batch)]
    examples = _as_integers(tf.fingerprint(tf.stack(parts, axis=1)))
    return tf.size(examples, out_type=tf.int64), tf.reduce_sum(examples)


def _of_component(value: Any) -> tf.Tensor:
    """Returns one int64 fingerprint a row of a tensor of any kind, shape [batch]."""
    if isinstance(value, tf.RaggedTensor):
        value = value.to_sparse()
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
