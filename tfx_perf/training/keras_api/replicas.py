"""Keras 3 over several replicas computes what it computes on one device.

Its `fit` clips and unscales the gradients of each replica before it sums them, so that clipping
by a norm gives other updates than on one device, and an overflow on one replica is not seen by
the others; and it cannot train on several workers at all. tf_keras does both right.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfx_perf import interception


@contextlib.contextmanager
def as_one_device(model: Any, optimizers: list[Any]) -> Iterator[None]:
    """Has a Keras 3 model train over replicas as on one device, while the context lasts.

    Args:
        model: built under a `tf.distribute` strategy.
        optimizers: the model's, the outermost first.
    """
    strategy = model.distribute_strategy
    with contextlib.ExitStack() as undo:

        def replace(owner: Any, name: str, make: Callable[..., Any]) -> None:
            undo.enter_context(interception.replacing(owner, name, make))

        if optimizers:
            replace(optimizers[0], "apply", _summing_first)
        for optimizer in optimizers:
            replace(optimizer, "_all_reduce_sum_gradients", lambda own: list)
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            trainer = _trainer_module()
            replace(model, "_maybe_symbolic_build", lambda own: _building_locally(own, strategy))
            replace(trainer, "reduce_per_replica", _reducing_scalars)
        yield


def _trainer_module() -> Any:
    from keras.src.backend.tensorflow import trainer

    return trainer


def _summing_first(own: Callable[..., Any]) -> Callable[..., Any]:
    """Sums the gradients over all replicas before anything is made of them.

    Averaging, as of losses, is done before: Keras divides each replica's loss by their number.
    """

    def apply(gradients: Any, trainable_variables: Any = None) -> Any:
        gradients = list(gradients)
        context = tf.distribute.get_replica_context()
        present = [each for each in gradients if each is not None]
        summed = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, present))
        gradients = [None if each is None else next(summed) for each in gradients]
        return own(gradients, trainable_variables)

    return apply


def _building_locally(
    own: Callable[..., Any], strategy: tf.distribute.Strategy
) -> Callable[..., Any]:
    """Builds by what this worker has; Keras would reduce a batch outside of the replicas."""

    def build(iterator: Any = None, data_batch: Any = None) -> Any:
        if iterator is not None:
            _, _, batches = next(iter(iterator))
            data_batch = tf.nest.map_structure(
                lambda value: strategy.experimental_local_results(value)[0], next(batches)
            )
        return own(data_batch=data_batch)

    return build


def _reducing_scalars(own: Callable[..., Any]) -> Callable[..., Any]:
    """Reduces logs, which are scalars, over the workers; Keras would take the mean over an axis."""

    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        if reduction != "auto":
            return own(values, strategy, reduction)
        return tf.nest.map_structure(
            lambda value: strategy.reduce("MEAN", value, axis=None), values
        )

    return reduce_per_replica
