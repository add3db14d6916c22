"""Small things about tf.data (`datasets`)."""

import numpy as np
import tensorflow as tf

from tfx_perf.tf_internals import datasets


def test_copies_are_the_same_values_of_the_same_kinds():
    ragged = tf.ragged.constant([[1], [2, 3]])
    element = {"dense": tf.ones((2, 3)), "ragged": ragged}, tf.constant(["a", "b"])
    data = datasets.repeated(element)
    copies = datasets.copied(data)
    assert copies.element_spec == data.element_spec
    features, label = next(iter(copies))
    np.testing.assert_array_equal(features["dense"], element[0]["dense"])
    assert features["ragged"].to_list() == ragged.to_list()
    assert label.numpy().tolist() == [b"a", b"b"]
    (alone,) = datasets.copied(tf.data.Dataset.from_tensors(tf.range(2)))
    assert alone.numpy().tolist() == [0, 1]
