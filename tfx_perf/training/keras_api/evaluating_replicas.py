"""Makes Keras 3 evaluate and build models over replicas and workers as on one device."""

import contextlib
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfx_perf.core import interception


@contextlib.contextmanager
def evaluating() -> Iterator[None]:
    """Has Keras 3 build models and reduce their results over replicas, inside the context."""
    trainer = importlib.import_module("keras.src.backend.tensorflow.trainer")
    losses = importlib.import_module("keras.src.losses.loss")
    with (
        # Not a model's own: what it is made of tells whether a checkpoint is its.
        interception.replacing(
            trainer.TensorFlowTrainer, "_maybe_symbolic_build", _building_locally
        ),
        interception.replacing(trainer, "reduce_per_replica", _reducing_scalars),
        interception.replacing(losses, "reduce_values", _scaling_scalars(losses)),
    ):
        yield


def _scaling_scalars(losses: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Divides a mean that a loss function itself returns by the replicas, as Keras does its own."""

    def scaling(own: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(own)  # which is another one in every version

        def reduce_values(values: Any, *arguments: Any, **named: Any) -> Any:
            found = own(values, *arguments, **named)
            given = signature.bind(values, *arguments, **named)
            given.apply_defaults()
            is_mean = given.arguments["reduction"] not in (None, "none", "sum")
            is_done = not is_mean or len(values.shape)
            return found if is_done else losses.scale_loss_for_distribution(found)

        return reduce_values

    return scaling


def _building_locally(own: Callable[..., Any]) -> Callable[..., Any]:
    """Builds from one replica's batch; Keras would add up the batches of all."""

    def build(model: Any, iterator: Any = None, data_batch: Any = None) -> Any:
        strategy = model.distribute_strategy
        if iterator is not None and strategy.num_replicas_in_sync > 1:
            _, _, batches = next(iter(iterator))
            iterator, data_batch = None, tf.nest.map_structure(
                lambda value: strategy.experimental_local_results(value)[0], next(batches)
            )
        return own(model, iterator=iterator, data_batch=data_batch)

    return build


def _reducing_scalars(own: Callable[..., Any]) -> Callable[..., Any]:
    """Reduces logs, which are scalars, over the workers; Keras would take the mean over an axis."""

    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        is_of_workers = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
        if reduction != "auto" or not is_of_workers:
            return own(values, strategy, reduction)
        return tf.nest.map_structure(
            lambda value: strategy.reduce("MEAN", value, axis=None), values
        )

    return reduce_per_replica
