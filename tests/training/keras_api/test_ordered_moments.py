"""Adam's moments, `ordered` by `parameter_server.fit`: the same results, one worker at a time."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tfx_perf.distribute.parameter_server import fit
from tfx_perf.training.keras_api import slots


def stepping(optimizer, table):
    """Returns a traced step that looks up rows."""

    @tf.function
    def step(rows):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, rows) ** 2)
        optimizer.apply_gradients([(tape.gradient(loss, table), table)])

    return step


ROWS = tf.constant([[0, 2, 2], [1, 2, 3], [3, 3, 0]])
OPTIMIZERS = {
    "Adam": lambda: tf_keras.optimizers.Adam(0.1),
    "adaptive": lambda: tf_keras.optimizers.Adam(0.1, epsilon=1e-3, adaptive_epsilon=True),
    "AdamW": lambda: tf_keras.optimizers.AdamW(0.1, weight_decay=0.01, clipnorm=0.5),
}


def trained(make, *, is_ordered):
    table, optimizer = tf.Variable(tf.reshape(tf.range(8.0), (4, 2))), make()
    if is_ordered:
        with fit.ordered(optimizer):
            step = stepping(optimizer, table)
            [step(rows) for rows in ROWS]
    else:
        step = stepping(optimizer, table)
        [step(rows) for rows in ROWS]
    assert "update_step" not in vars(optimizer)
    return [table.numpy(), *(each.numpy() for each in slots.adam_moments(optimizer, table))]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_results_are_the_same(name):
    made = OPTIMIZERS[name]
    for mine, keras in zip(
        trained(made, is_ordered=True), trained(made, is_ordered=False), strict=True
    ):
        np.testing.assert_allclose(mine, keras, rtol=1e-6)


def before(operation):
    """Returns an operation and all that run before it."""
    found, rest = set(), [operation]
    while rest:
        each = rest.pop()
        if each not in found:
            found.add(each)
            rest += [*each.control_inputs, *(tensor.op for tensor in each.inputs)]
    return found


def test_a_second_moment_is_written_before_the_first_and_read_after_it():
    table, optimizer = tf.Variable(tf.ones((4, 2))), tf_keras.optimizers.Adam()
    optimizer.build([table])
    with fit.ordered(optimizer):
        graph = stepping(optimizer, table).get_concrete_function(ROWS[0]).graph
    handle = {outer.ref(): inner for outer, inner in graph.captures}

    def of(variable, kind):
        tensor = handle[variable.handle.ref()]
        return [each for each in tensor.consumers() if each.type == kind]

    first, second = slots.adam_moments(optimizer, table)
    (update,) = of(table, "AssignSubVariableOp")
    (first_added,), (second_added,) = (of(each, "ResourceScatterAdd") for each in (first, second))
    assert second_added in before(first_added)
    (read,) = [each for each in of(second, "ReadVariableOp") if second_added in before(each)]
    (first_read,) = [each for each in of(first, "ReadVariableOp") if first_added in before(each)]
    assert first_read in before(read) and read in before(update)


@pytest.mark.parametrize(
    ("optimizer", "is_orderable"),
    [
        (tf_keras.optimizers.AdamW(), True),
        (tf_keras.optimizers.Adam(amsgrad=True), False),
        (tf_keras.optimizers.Nadam(), False),
        (tf_keras.optimizers.legacy.Adam(), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_it_is_known_which_can_be_ordered(optimizer, is_orderable):
    assert fit.is_orderable(optimizer) is is_orderable
