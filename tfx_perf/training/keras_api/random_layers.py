"""Gives random layers of tf_keras a state, as they have in Keras 3, or makes them draw by rows.

tf_keras draws from operations with a hidden state, or from a `tf.random.Generator`, whose numbers
depend on the replica.
"""

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfx_perf.training.keras_api import per_row_rng
from tfx_perf.training.keras_api.base_api import RANDOM_SCOPE, all_layers

_LEGACY, _STATEFUL = "legacy_stateful", "stateful"
_STATE = "_row_seeds"  # attribute of a layer's generator, which lives as long as the graphs
_DRAWS_OF_SHAPES = ("random_normal", "random_uniform", "truncated_normal")
_MOST_DRAWS = 2**32  # of one layer in one step


class SaveableRandomLayers:
    """Makes a model's random layers (Dropout, ...) draw from generators with a state.

    tf_keras draws from operations whose state lives in the compiled graph, where it cannot be
    read; its `enable_tf_random_generator` would give each new layer a `tf.random.Generator`.
    This does the same for existing layers. The masks differ, are as random as before, and follow
    from the same seeds. The generators live as long as this object, as graphs use them.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._stateful: dict[int, tuple[Any, dict[str, Any]]] = {}

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Wraps a training, after which the layers are as they were."""
        before = []
        with self._model.distribute_strategy.scope():
            for layer in all_layers(self._model):
                generator = getattr(layer, "_random_generator", None)
                if getattr(generator, "_rng_type", None) == _LEGACY and _may_draw(layer):
                    before.append((generator, dict(vars(generator))))
                    self._install(generator)
        try:
            yield
        finally:
            for generator, attributes in before:
                vars(generator).clear()
                vars(generator).update(attributes)

    def _install(self, generator: Any) -> None:
        if id(generator) in self._stateful:
            vars(generator).update(self._stateful[id(generator)][1])
            return
        generator._rng_type, generator._built = _STATEFUL, False
        with tf.name_scope(RANDOM_SCOPE):
            generator._maybe_init()
        self._stateful[id(generator)] = generator, dict(vars(generator))


def _may_draw(layer: Any) -> bool:
    """Whether a layer may draw numbers; a recurrent one without dropout does not even seed them."""
    return not hasattr(layer, "recurrent_dropout") or bool(layer.dropout or layer.recurrent_dropout)


@contextlib.contextmanager
def drawing_by_rows(model: Any) -> Iterator[None]:
    """Makes a tf_keras model's layers, but not initializers, draw by rows inside the context."""
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
    """Returns a seed that follows from the step and from the number of draws in it.

    So replicas draw the same numbers even if one, without rows, drew nothing in an earlier step.
    `state` has the layer's seed, the step of its last draw, and how many draws that step had.
    """
    seed, last_step, count = tf.unstack(state)
    step = tf.cast(tf.convert_to_tensor(iterations), tf.int64)
    count = tf.where(step == last_step, count, 0)
    state.assign(tf.stack([seed, step, count + 1]))
    return tf.stack([seed, step * _MOST_DRAWS + count])


@contextlib.contextmanager
def _drawing_from(generator: Any, next_seed: Callable[[], tf.Tensor]) -> Iterator[None]:
    before = dict(vars(generator))
    backend = importlib.import_module("tf_keras.src.backend")

    def method(name: str, make: Callable[..., Any]) -> Callable[..., Any]:
        return make(functools.partial(getattr(type(generator), name), generator))

    vars(generator).update(
        {name: method(name, per_row_rng.drawing) for name in _DRAWS_OF_SHAPES},
        dropout=method("dropout", per_row_rng.dropping),
        make_seed_for_stateless_op=next_seed,
        _rng_type=backend.RandomGenerator.RNG_STATELESS,  # gives each draw a seed
        _built=True,
    )
    try:
        yield
    finally:
        state = vars(generator)[_STATE]
        vars(generator).clear()
        vars(generator).update({**before, _STATE: state})
