"""Narrow columns side by side, strings as numbers: all come back as they were."""

import numpy as np
import pytest
import tensorflow as tf

from tfx_perf.input import dictionary, packing


def spec(dtype, *shape):
    return tf.TensorSpec([None, *shape], dtype)


def test_a_pack_has_one_dtype_and_fills_a_cache_line():
    specs = [spec(tf.int64, 1)] * 10 + [spec(tf.float32), spec(tf.float32, 3)]
    assert packing.packs(specs) == (tuple(range(8)), (8, 9), (10, 11))


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
def test_what_is_wide_or_not_dense_stays_alone(alone):
    narrow = spec(tf.int64, 1)
    assert packing.packs([narrow, alone, narrow]) == ((0, 2), (1,))


@pytest.mark.parametrize("dtype", [tf.int64, tf.float32, tf.bool])
def test_columns_come_back(dtype):
    specs = [spec(dtype), spec(dtype, 1), spec(dtype, 1, 2)]
    columns = [
        tf.cast(np.random.default_rng(0).integers(0, 2, [5, *kind.shape[1:]]), dtype)
        for kind in specs
    ]
    taken = packing.split(packing.join(columns), specs)
    for one, other in zip(taken, columns, strict=True):
        np.testing.assert_array_equal(one, other)


def test_strings_that_repeat_themselves_are_coded():
    column = tf.constant([["a"], ["b"], ["a"], [""], ["b"], ["a"], ["a"], ["b"]] * 4)
    places, distinct = dictionary.encode(column)
    assert places.dtype == tf.int32
    assert places.shape == column.shape
    assert sorted(distinct.numpy()) == [b"", b"a", b"b"]
    np.testing.assert_array_equal(tf.gather(distinct, places), column)


def test_strings_that_differ_are_not_coded():
    assert dictionary.encode(tf.constant([str(number) for number in range(8)])) is None
