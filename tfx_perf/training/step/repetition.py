"""A loop over training steps in a graph that holds the step once."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_perf.tf_internals.graphs import QuickFunction
from tfx_perf.training.keras_api import constant_shapes

Tensors = Any  # a nested structure of tensors


def repeated(
    step: Callable[[tf.Tensor, Tensors], tuple[Tensors, Tensors]],
    times: tf.Tensor,
    *,
    state: Tensors = (),
) -> tuple[Tensors, Tensors]:
    """Runs a step several times, one after the other; its Python code runs once.

    A loop in a graph must know what its body returns before that is traced. So the step is traced
    as a function of its own, which TensorFlow puts in the place of the loop's call of it.

    Args:
        step: takes how many steps were before it, and the state that the one before returned.
        times: how often, at least once.
        state: for the first step.

    Returns:
        The results of the last step, and its state.
    """
    with constant_shapes.in_a_loop():
        function = QuickFunction(step).get_concrete_function(tf.constant(0), state)

    def body(done: tf.Tensor, last: tuple[Tensors, Tensors]) -> tuple[tf.Tensor, Any]:
        # If the data end in this step, that must not cut short the one before.
        with tf.control_dependencies(tf.nest.flatten(last)):
            return done + 1, function(done, last[1])

    results, _ = function.structured_outputs
    if all(result.shape.is_fully_defined() for result in tf.nest.flatten(results)):
        zeros = tf.nest.map_structure(lambda each: tf.zeros(each.shape, each.dtype), results)
        begin = tf.constant(0), (zeros, state)
    else:
        begin = tf.constant(1), function(tf.constant(0), state)
    return tf.while_loop(lambda done, _: done < times, body, begin)[1]
