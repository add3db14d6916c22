"""Keras 3 over several replicas computes what it computes on one device.

Its `fit` clips and unscales the gradients of each replica before it sums them, so that clipping by
a norm gives other updates, and the others do not see an overflow on one replica. It fails where an
optimizer updates weights in some steps only; all replicas drop the same units; and it cannot train
on several workers at all. tf_keras does all that right.
"""

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfx_perf.core import interception
from tfx_perf.distribute import optimizers_over_replicas
from tfx_perf.training.keras_api import row_draws
from tfx_perf.training.keras_api.base_api import traced_apart

_SEEDS_APART = 7919  # a prime: users seed their layers with 1, 2, 3
_DRAWS_OF_SHAPES = ("normal", "uniform", "truncated_normal", "randint")


@contextlib.contextmanager
def one_replica() -> Iterator[None]:
    """Has Keras 3 train where a strategy has but one replica, while the context lasts."""
    with contextlib.ExitStack() as undo:
        for replacement in optimizers_over_replicas.in_some_steps():
            undo.enter_context(interception.replacing(*replacement))
        yield


@contextlib.contextmanager
def as_one_device(
    model: Any, *, reduction_dtype: str | None, draws_by_rows: bool
) -> Iterator[None]:
    """Has Keras 3 train over replicas as on one device in the context; see `over_replicas`."""
    keras = importlib.import_module("keras")
    with contextlib.ExitStack() as undo:

        def replace(owner: Any, name: str, make: Callable[..., Any]) -> None:
            undo.enter_context(interception.replacing(owner, name, make))

        for replacement in optimizers_over_replicas.replacements(reduction_dtype):
            replace(*replacement)
        replace(keras.layers.BatchNormalization, "_moments", _moments_of_rows)
        replace(keras.random.SeedGenerator, "next", row_draws.noted)
        if not draws_by_rows:
            replace(keras.random.SeedGenerator, "next", _own_seeds)
        undo.enter_context(traced_apart(model))
        yield


@contextlib.contextmanager
def drawing_by_rows() -> Iterator[None]:
    """Has Keras 3 draw by rows while the context lasts; see `row_draws`."""
    module = importlib.import_module("keras.src.backend.tensorflow.random")
    with contextlib.ExitStack() as undo:
        for name in _DRAWS_OF_SHAPES:
            undo.enter_context(interception.replacing(module, name, row_draws.drawing))
        undo.enter_context(interception.replacing(module, "dropout", row_draws.dropping))
        yield


def _moments_of_rows(own: Callable[..., Any]) -> Callable[..., Any]:
    """A replica without rows, as a short last batch leaves one, keeps the moving averages."""

    def moments(layer: Any, inputs: Any, mask: Any) -> Any:
        kept = tf.convert_to_tensor(layer.moving_mean), tf.convert_to_tensor(layer.moving_variance)
        has_rows = tf.size(inputs) > 0
        found = own(layer, inputs, mask)
        return tuple(
            tf.where(has_rows, new, tf.cast(old, new.dtype))
            for new, old in zip(found, kept, strict=True)
        )

    return moments


def _own_seeds(own: Callable[..., Any]) -> Callable[..., Any]:
    """Has each replica draw other numbers; Keras drops the same units in all of them."""

    def next_seed(generator: Any, *arguments: Any, **named: Any) -> tf.Tensor:
        seed = own(generator, *arguments, **named)
        context = tf.distribute.get_replica_context()
        if context is None or context.num_replicas_in_sync == 1:
            return seed
        replica = tf.cast(context.replica_id_in_sync_group, seed.dtype)
        return seed + tf.stack([_SEEDS_APART * replica, tf.zeros_like(replica)])

    return next_seed


