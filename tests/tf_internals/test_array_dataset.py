"""What a dataset over arrays tells of them."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import tensorflow as tf

from tfx_perf.tf_internals import array_dataset
from tfx_perf.tf_internals.array_dataset import ArrayDataset

NUMBERS = np.arange(12.0).reshape(6, 2)


def content(arrays):
    data = tf.data.Dataset.range(3)
    return ArrayDataset(data, arrays=arrays, batch_size=2).content


@pytest.mark.parametrize(
    "part",
    [
        NUMBERS,
        tf.constant(NUMBERS),
        pd.DataFrame(NUMBERS),
        np.array([["a"], ["bc"]], dtype=object),
        {"a": NUMBERS, "b": [NUMBERS + 1, None]},
        tf.sparse.from_dense(NUMBERS),
    ],
)
def test_equal_arrays_have_the_same_content(part):
    copy = tf.nest.map_structure(lambda each: getattr(each, "copy", lambda: each)(), part)
    assert content((part, None)) == content((copy, None))


@pytest.mark.parametrize(
    "other",
    [NUMBERS + 1, NUMBERS.astype("float32"), NUMBERS[:4], NUMBERS.reshape(2, 6), None, {0: 2.0}],
)
def test_other_arrays_have_another_content(other):
    assert content(NUMBERS) != content(other)
    assert content({0: 1.0}) != content({0: 2.0})


@pytest.mark.parametrize(
    "make",
    [tf.sparse.from_dense, scipy.sparse.csr_matrix, tf.RaggedTensor.from_tensor, pd.DataFrame],
)
def test_what_holds_other_numbers_in_the_same_shape_has_another_content(make):
    assert content(make(NUMBERS)) == content(make(NUMBERS.copy()))
    assert content(make(NUMBERS)) != content(make(NUMBERS * 2))


def test_class_weights_may_be_of_numpy():
    assert content({0: np.float64(1.5)}) != content({0: np.float64(2.5)})


def test_of_large_arrays_some_rows_are_compared(monkeypatch):
    monkeypatch.setattr(array_dataset, "_COMPARED_BYTES", NUMBERS.nbytes // 2)
    changed = NUMBERS.copy()
    changed[1] += 1
    assert content(NUMBERS) == content(changed)
    changed[2] += 1
    assert content(NUMBERS) != content(changed)


def test_a_dataset_over_arrays_has_the_elements_and_options_of_what_keras_made():
    data = tf.data.Dataset.range(3)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    found = ArrayDataset(data.with_options(options), arrays=NUMBERS, batch_size=2)
    assert list(found.as_numpy_iterator()) == [0, 1, 2]
    assert int(found.cardinality()) == 3
    assert found.batch_size == 2
    policy = found.options().experimental_distribute.auto_shard_policy
    assert policy is tf.data.experimental.AutoShardPolicy.DATA
