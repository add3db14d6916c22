"""Random layers of tf_keras that draw by the row, each time from a seed, as those of Keras 3 do.

tf_keras draws from operations with a hidden state, or from a `tf.random.Generator`, whose numbers
depend on the replica.
"""

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfx_perf.training.keras_api import row_draws
from tfx_perf.training.keras_api.base_api import all_layers

_STATE = "_row_seeds"  # in a layer's generator, since the graphs that use it live as long as that
_DRAWS_OF_SHAPES = ("random_normal", "random_uniform", "truncated_normal")
_MOST_DRAWS = 2**32  # of a layer in a step


@contextlib.contextmanager
def drawing_by_rows(model: Any) -> Iterator[None]:
    """Has the layers of a model draw by rows while the context lasts; see `row_draws`.

    What initializes weights draws as ever.

    Args:
        model: of tf_keras; layers that it does not have yet draw as ever.
    """
    iterations = model.optimizer.iterations
    with contextlib.ExitStack() as undo:
        for layer in all_layers(model):
            generator = getattr(layer, "_random_generator", None)
            if generator is not None:
                seed = generator._create_seed(generator._seed)
                with model.distribute_strategy.scope():
                    state = tf.Variable([seed, 0, 0], trainable=False, dtype=tf.int64)
                next_seed = functools.partial(_next_seed, state, iterations)
                undo.enter_context(_drawing_from(generator, next_seed))
                vars(generator)[_STATE] = state
        yield


def _next_seed(state: tf.Variable, iterations: Any) -> tf.Tensor:
    """Returns a seed that follows from the step, and from what was drawn in it.

    So replicas draw the same though one of them, without rows, has drawn nothing in a step before.

    Args:
        state: the layer's seed, the step of the last draw, and how many it has had.
        iterations: of the optimizer.
    """
    seed, last_step, count = tf.unstack(state)
    step = tf.cast(tf.convert_to_tensor(iterations), tf.int64)
    count = tf.where(step == last_step, count, 0)
    state.assign(tf.stack([seed, step, count + 1]))
    return tf.stack([seed, step * _MOST_DRAWS + count])


@contextlib.contextmanager
def _drawing_from(generator: Any, next_seed: Callable[[], tf.Tensor]) -> Iterator[None]:
    before = dict(vars(generator))

    def method(name: str, make: Callable[..., Any]) -> Callable[..., Any]:
        return make(functools.partial(getattr(type(generator), name), generator))

    vars(generator).update(
        {name: method(name, row_draws.drawing) for name in _DRAWS_OF_SHAPES},
        dropout=method("dropout", row_draws.dropping),
        make_seed_for_stateless_op=next_seed,
        _rng_type=_stateless(),
        _built=True,
    )
    try:
        yield
    finally:
        state = vars(generator)[_STATE]
        vars(generator).clear()
        vars(generator).update({**before, _STATE: state})


def _stateless() -> str:
    """Returns the kind of generator of tf_keras that has each draw get a seed."""
    return importlib.import_module("tf_keras.src.backend").RandomGenerator.RNG_STATELESS
