"""Fusions of compiled steps, against counts by hand."""

import tensorflow as tf

from tfx_perf.xla import hlo

ROWS, COLUMNS = 128, 64


def fusions_of(step):
    batch = (tf.ones((ROWS, COLUMNS)), tf.ones((ROWS, COLUMNS)))
    compiled = hlo.step_hlo(lambda both: step(*both), batch, optimized=True)
    return hlo.count_fusions(compiled.hlo_module)


def test_operations_inside_a_fusion_count_once():
    found = fusions_of(lambda x, y: tf.exp(x * y + 1.0))
    product_and_sum = 2 * 4 * ROWS * COLUMNS  # what leaves the fusion, the exponential, does not
    assert found == (1, product_and_sum)


def test_two_fusions_on_both_sides_of_a_product():
    def step(x, y):
        hidden = tf.matmul(tf.exp(x + y), tf.ones((COLUMNS, 8)) * x[0, 0])
        return tf.nn.relu(tf.sin(hidden) * 3.0)

    count, saved_bytes = fusions_of(step)
    assert count >= 2
    assert saved_bytes >= 4 * ROWS * COLUMNS  # the sum inside of the exponential


def test_a_product_alone_is_no_fusion():
    found = fusions_of(lambda x, y: tf.matmul(x, y, transpose_b=True))
    assert found == (0, 0)
