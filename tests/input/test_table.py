"""Narrow columns side by side, strings as numbers: all come back as they were."""

import numpy as np
import pytest
import tensorflow as tf

from tfx_perf.input.candidates import table

pytestmark = pytest.mark.each_choice


def spec(dtype, *shape):
    return tf.TensorSpec([None, *shape], dtype)


def test_a_pack_has_one_dtype_and_fills_a_cache_line():
    specs = [spec(tf.int64, 1)] * 10 + [spec(tf.float32), spec(tf.float32, 3)]
    assert table.packed(specs) == (tuple(range(8)), (8, 9), (10, 11))


@pytest.mark.parametrize(
    "alone",
    [
        spec(tf.int64, 784),
        spec(tf.int64, None),
        spec(tf.int64, 0),
        spec(tf.string, 1),
        tf.RaggedTensorSpec([None, None], tf.int64),
        tf.SparseTensorSpec([None, None], tf.int64),
    ],
)
def test_wide_or_sparse_features_stay_alone(alone):
    narrow = spec(tf.int64, 1)
    assert table.packed([narrow, alone, narrow]) == ((0, 2), (1,))


@pytest.mark.parametrize("dtype", [tf.int64, tf.float32, tf.bool])
def test_columns_come_back(dtype):
    specs = [spec(dtype), spec(dtype, 1), spec(dtype, 1, 2)]
    columns = [
        tf.cast(np.random.default_rng(0).integers(0, 2, [5, *kind.shape[1:]]), dtype)
        for kind in specs
    ]
    pieces = [[column[:2], column[2:2], column[2:]] for column in columns]
    joined = table.side_by_side(pieces)
    assert not any(pieces)
    taken = table.unpacked(joined, specs)
    for one, other in zip(taken, columns, strict=True):
        np.testing.assert_array_equal(one, other)


def test_nothing_is_held_twice_but_strings():
    numbers, strings = [tf.range(3), tf.range(2)], [tf.constant(["a"]), tf.constant(["b", "c"])]
    for pieces, is_held_twice in ((numbers, False), (strings, True)):
        found = table.Column(spec(pieces[0].dtype))
        for piece in pieces:
            found.add(piece)
        assert bool(found.doubled_bytes) == is_held_twice
    assert table.side_by_side([numbers]).numpy().tolist() == [0, 1, 2, 0, 1]
    assert table.side_by_side([strings]).numpy().tolist() == [b"a", b"b", b"c"]
    assert table.side_by_side([[tf.zeros([0, 3]), tf.zeros([0, 3])]]).shape == [0, 3]


def column_of(*chunks):
    found = table.column_for(spec(tf.string, 1))
    for chunk in chunks:
        found.add(tf.constant(chunk, shape=[len(chunk), 1]))
    found.end()
    return found


def test_strings_that_repeat_themselves_are_coded():
    values = ["a", "b", "a", "", "b", "a", "a", "b"] * 4
    found = column_of(values[:5], values[5:])
    distinct = found.distinct
    (places,) = found.tensors()
    assert (places.dtype, places.shape) == (tf.int32, [32, 1])
    assert sorted(distinct.numpy()) == [b"", b"a", b"b"]
    assert tf.gather(distinct, places).numpy().ravel().tolist() == [v.encode() for v in values]


def test_large_strings_are_held_once_each():
    large = ["x" * 40_000, "y" * 40_000]
    found = column_of(*([large * 8] * 10))
    assert found.size_bytes < 100_000


@pytest.mark.parametrize("count", [8, 40_000])
def test_strings_that_differ_are_not_coded(count):
    values = [str(number) for number in range(count)]
    found = column_of(values[: count // 2], values[count // 2 :])
    assert found.distinct is None
    (strings,) = found.tensors()
    assert strings.numpy().ravel().tolist() == [value.encode() for value in values]
