"""Vectors of records that are bounded in bytes, whatever the size of a record.

How large records are is known for certain only once they are read: those at the beginning of a
file may be a thousand times smaller than the rest.
"""

from typing import Any, NamedTuple

import tensorflow as tf

TURN = 256
"""Records to hand on at once, where they are not large: a call for each would cost more than it."""


class RowSize(NamedTuple):
    """How large a row is at the most, by the size of its record.

    Attributes:
        padding_bytes: what it takes whatever is in the record.
        ratio: what each byte of the record becomes.
    """

    padding_bytes: int
    ratio: int

    def of(self, records: tf.Tensor) -> tf.Tensor:
        """Returns the sizes of the rows of serialised records, int64."""
        return self.padding_bytes + self.ratio * tf.cast(tf.strings.length(records), tf.int64)


def joined(
    vectors: tf.data.Dataset, *, rows: int, limit_bytes: float, row_size: RowSize
) -> tf.data.Dataset:
    """Returns the records of a finite dataset in larger blocks.

    Nothing is copied until a block is complete: what it will be made of is kept as a list.

    Args:
        vectors: of serialised records, each a string tensor of shape [n].
        rows: a block ends with the vector that gives it as many rows as these,
        limit_bytes: or as many bytes.
        row_size: what a row counts for.
    """
    # An empty vector at the end tells that what is left is a block.
    marked = vectors.map(lambda vector: (vector, False)).concatenate(
        tf.data.Dataset.from_tensors((tf.constant([], tf.string), True))
    )

    def step(state: tuple[tf.Tensor, ...], item: tuple[tf.Tensor, ...]) -> tuple[Any, tf.Tensor]:
        kept, row_count, size_bytes = state
        vector, is_last = item
        kept = tf.raw_ops.TensorListPushBack(input_handle=kept, tensor=vector)
        row_count += tf.size(vector, tf.int64)
        size_bytes += tf.reduce_sum(row_size.of(vector))
        return tf.cond(
            is_last | (row_count >= rows) | (size_bytes >= int(limit_bytes)),
            lambda: (_nothing(), _concatenated(kept)),
            lambda: ((kept, row_count, size_bytes), tf.constant([], tf.string)),
        )

    return marked.scan(_nothing(), step).filter(lambda block: tf.size(block) > 0)


def cut(blocks: tf.data.Dataset, *, limit_bytes: float, row_size: RowSize) -> tf.data.Dataset:
    """Returns the same records in vectors of about `limit_bytes`, or of one record.

    Args:
        blocks: of serialised records, each a string tensor of shape [n].
        limit_bytes: of the rows that are made of a vector.
        row_size: what a row takes.
    """

    def pieces(block: tf.Tensor) -> tf.data.Dataset:
        before = tf.cumsum(row_size.of(block), exclusive=True)
        number = before // int(limit_bytes)
        begins = 1 + tf.where(number[1:] != number[:-1])[:, 0]
        splits = tf.concat([[0], begins, tf.shape(block, tf.int64)], axis=0)
        places = tf.data.Dataset.from_tensor_slices((splits[:-1], splits[1:]))
        return places.map(lambda begin, end: block[begin:end])

    return blocks.flat_map(pieces)


def _nothing() -> tuple[tf.Tensor, ...]:
    kept = tf.raw_ops.EmptyTensorList(
        element_shape=[-1], max_num_elements=-1, element_dtype=tf.string
    )
    return kept, tf.constant(0, tf.int64), tf.constant(0, tf.int64)


def _concatenated(kept: tf.Tensor) -> tf.Tensor:
    block, _ = tf.raw_ops.TensorListConcatV2(
        input_handle=kept, element_shape=[-1], leading_dims=tf.constant([], tf.int64),
        element_dtype=tf.string,
    )  # fmt: skip
    return block
