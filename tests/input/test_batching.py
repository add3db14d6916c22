"""Vectors of records are bounded in bytes, whatever the size of a record, and lose none."""

import tensorflow as tf

from tfx_perf.input.candidates import batching
from tfx_perf.input.candidates.source import RowSize

ITSELF = RowSize(padding_bytes=0, ratio=1)


def records(*sizes):
    return [bytes([number]) * size for number, size in enumerate(sizes)]


def vectors(*lists):
    """A dataset of vectors, one for each list of records."""
    return tf.data.Dataset.from_generator(
        lambda: iter(lists), output_signature=tf.TensorSpec([None], tf.string)
    )


def of(dataset):
    return [vector.tolist() for vector in dataset.as_numpy_iterator()]


def joined(*lists, rows=100, limit_bytes=100):
    found = batching.joined(vectors(*lists), rows=rows, limit_bytes=limit_bytes, row_size=ITSELF)
    return of(found)


def test_a_block_ends_with_the_vector_that_makes_it_large_enough():
    a, b, c, d = records(40, 40, 40, 40)
    assert joined([a], [b], [c], [d]) == [[a, b, c], [d]]
    assert joined([a], [b], [c], [d], rows=2) == [[a, b], [c, d]]
    assert joined([a, b, c, d]) == [[a, b, c, d]]


def test_empty_vectors_make_no_block():
    (a,) = records(40)
    assert joined([], [a], []) == [[a]]
    assert joined([]) == joined() == []


def test_cut_batches_keep_their_order_and_a_large_record_is_alone():
    made = records(10, 10, 10, 500, 10, 10)
    pieces = of(batching.cut(vectors(made), limit_bytes=25, row_size=ITSELF))
    assert sum(pieces, []) == made
    assert all(sum(map(len, piece[:-1])) < 25 for piece in pieces)
    assert of(batching.cut(vectors(made), limit_bytes=1000, row_size=ITSELF)) == [made]


def test_a_row_takes_more_than_its_record():
    size = RowSize(padding_bytes=8, ratio=3)
    assert size.of(tf.constant([b"", b"four"])).numpy().tolist() == [8, 20]
