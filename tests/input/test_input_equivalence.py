"""The digest of a dataset's contents."""

import pytest
import tensorflow as tf

from tfx_perf.input import equivalence

pytestmark = pytest.mark.each_choice


def rows(values, *, batch_size=4):
    values = tf.constant(values)
    return tf.data.Dataset.from_tensor_slices({"a": values, "b": -values}).batch(batch_size)


def test_neither_order_nor_batching_matters():
    expected = equivalence.prefix(rows([1, 2, 3, 4, 5])).digest
    assert equivalence.prefix(rows([5, 3, 1, 2, 4], batch_size=2)).digest == expected
    assert expected.count == 5


@pytest.mark.parametrize("values", [[1, 2, 3], [1, 2, 3, 4, 4], [1, 2, 3, 5], [1, 1, 3, 4]])
def test_lost_doubled_and_changed_examples_matter(values):
    assert equivalence.prefix(rows(values)).digest != equivalence.prefix(rows([1, 2, 3, 4])).digest


def test_which_values_belong_together_matters():
    pairs = tf.data.Dataset.from_tensor_slices(([1, 2], [3, 4])).batch(2)
    swapped = tf.data.Dataset.from_tensor_slices(([1, 2], [4, 3])).batch(2)
    assert equivalence.prefix(pairs).digest != equivalence.prefix(swapped).digest


@pytest.mark.parametrize("to_sparse", [True, False])
def test_padding_does_not_matter_but_place_does(to_sparse):
    def words(*lists, batch_size):
        ragged = tf.data.Dataset.from_tensor_slices(tf.ragged.constant(lists, dtype=tf.string))
        batches = ragged.ragged_batch(batch_size)
        return batches.map(lambda row: row.to_sparse()) if to_sparse else batches

    expected = equivalence.prefix(words(["a", "b"], ["c"], [], batch_size=3)).digest
    assert equivalence.prefix(words([], ["c"], ["a", "b"], batch_size=1)).digest == expected
    assert equivalence.prefix(words(["b", "a"], ["c"], [], batch_size=3)).digest != expected


def test_prefix_of_everything_is_the_digest():
    found = equivalence.prefix(rows([1, 2, 3, 4, 5]), seconds=60)
    assert found.complete
    assert found.batches == 2
    assert found.digest == equivalence.prefix(rows([1, 2, 3, 4, 5])).digest


def test_prefix_without_time_is_one_batch():
    found = equivalence.prefix(rows([1, 2, 3, 4, 5]), seconds=0)
    assert not found.complete
    assert found.digest == equivalence.prefix(rows([1, 2, 3, 4])).digest


def test_features_of_no_values_have_one_fingerprint():
    rows = tf.data.Dataset.from_tensors({"none": tf.zeros([6, 0], tf.string)})
    assert len({equivalence.prefix(rows).digest for _ in range(6)}) == 1
