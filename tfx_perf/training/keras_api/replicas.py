"""Keras 3 over several replicas computes what it computes on one device.

Its `fit` clips and unscales the gradients of each replica before it sums them, so that clipping
by a norm gives other updates than on one device, and an overflow on one replica is not seen by
the others; it fails where an optimizer updates weights in some steps only; all replicas drop the
same units; and it cannot train on several workers at all. tf_keras does all that right.
"""

import contextlib
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfx_perf import interception
from tfx_perf.training.keras_api.reduction import Reduction, Summing

_SEEDS_APART = 7919  # a prime: users seed their layers with 1, 2, 3


@contextlib.contextmanager
def as_one_device(model: Any, *, reduction: Reduction) -> Iterator[None]:
    """Has Keras 3 train over replicas as on one device, while the context lasts.

    What Keras has traced outside of the context is not used inside, nor the other way round.

    Args:
        model: built under a `tf.distribute` strategy.
        reduction: what is sent of gradients.
    """
    keras = importlib.import_module("keras")
    optimizers = keras.optimizers
    base = importlib.import_module("keras.src.optimizers.base_optimizer")
    summing = _SummingOnce(reduction, model.optimizer)
    with contextlib.ExitStack() as undo:

        def replace(owner: Any, name: str, make: Callable[..., Any]) -> None:
            undo.enter_context(interception.replacing(owner, name, make))

        # Of the classes, since an optimizer may have others in it, and a model several.
        replace(optimizers.LossScaleOptimizer, "apply", summing.scaled)
        replace(optimizers.LossScaleOptimizer, "check_finite", summing.checked)
        replace(optimizers.Optimizer, "_backend_apply_gradients", summing.noted)
        replace(optimizers.Optimizer, "_clip_gradients", summing.clipped)
        replace(optimizers.Optimizer, "_all_reduce_sum_gradients", lambda own: _as_they_are)
        overwriting = "_overwrite_model_variables_with_average_value"
        replace(optimizers.Optimizer, overwriting, _across_replicas)
        replace(base, "ops", _Operations)
        replace(keras.layers.BatchNormalization, "_moments", _moments_of_rows)
        replace(keras.random.SeedGenerator, "next", _own_seeds)
        losses = importlib.import_module("keras.src.losses.loss")
        replace(losses, "reduce_values", _scaling_scalars(losses))
        strategy = model.distribute_strategy
        trainer = importlib.import_module("keras.src.backend.tensorflow.trainer")
        # Not the model's own: what it is made of tells whether a checkpoint is its.
        trainer_class = trainer.TensorFlowTrainer
        replace(trainer_class, "_maybe_symbolic_build", _building_locally(strategy))
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            replace(trainer, "reduce_per_replica", _reducing_scalars)
        before, model.train_function = model.train_function, None
        try:
            yield
        finally:
            model.train_function = before


def _several() -> bool:
    """Whether this is one of several replicas."""
    context = tf.distribute.get_replica_context()
    return context is not None and context.num_replicas_in_sync > 1


class _SummingOnce:
    """Sums the gradients over all replicas before an optimizer clips them, and once.

    Those of a scaled loss are summed before they are unscaled, so that a sum that is too large for
    its type is found. But what is kept for later steps, accumulated or not sent, must not depend on
    the scale: there each replica looks for an overflow first, and all skip the step.

    Averaging, as of losses, is done before: Keras divides each replica's loss by their number.
    """

    def __init__(self, reduction: Reduction, optimizer: Any) -> None:
        """Has summed nothing yet.

        Args:
            reduction: what is sent.
            optimizer: the model's.
        """
        self._sum = Summing(reduction, optimizer)
        self._keeps = reduction.top_k_ratio is not None
        self._inner: list[Any] = []  # optimizers that get what was summed
        self._weights: dict[int, list[Any]] = {}  # by the id of the optimizer that trains them

    def scaled(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """Returns what sums, and then does what `apply` does, of one that scales the loss."""

        def apply(optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
            if _several() and not self._looks_first(optimizer):
                self._inner.append(optimizer.inner_optimizer)
                grads = self._summed(list(grads), trainable_variables or ())
            return own(optimizer, grads, trainable_variables)

        return apply

    def checked(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """Returns what has all replicas take a step, or none, of one that scales the loss."""

        def check_finite(optimizer: Any, grads: Any) -> tf.Tensor:
            found = own(optimizer, grads)
            if not (_several() and self._looks_first(optimizer)):
                return found
            context = tf.distribute.get_replica_context()
            overflows = tf.cast(tf.logical_not(found), tf.int32)
            return context.all_reduce(tf.distribute.ReduceOp.SUM, overflows) == 0

        return check_finite

    def noted(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """Returns what notes which weights an optimizer's gradients are of, and applies them."""

        def backend_apply_gradients(optimizer: Any, grads: Any, trainable_variables: Any) -> Any:
            self._weights[id(optimizer)] = list(trainable_variables)
            return own(optimizer, grads, trainable_variables)

        return backend_apply_gradients

    def clipped(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """Returns what sums, if that was not done before, and clips."""

        def clip(optimizer: Any, grads: Any) -> Any:
            is_summed = any(optimizer is inner for inner in self._inner)
            if _several() and not is_summed:
                grads = self._summed(grads, self._weights[id(optimizer)])
            return own(optimizer, grads)

        return clip

    def _looks_first(self, scaling: Any) -> bool:
        """Whether each replica looks for an overflow in its own gradients."""
        return self._keeps or bool(scaling.inner_optimizer.gradient_accumulation_steps)

    def _summed(self, grads: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        context = tf.distribute.get_replica_context()
        sum_up = functools.partial(context.all_reduce, tf.distribute.ReduceOp.SUM)
        present = [each for each in grads if each is not None]
        summed = iter(self._sum(present, weights, sum_up=sum_up) if present else ())
        return [None if each is None else next(summed) for each in grads]


def _as_they_are(optimizer: Any, grads_and_vars: Any) -> Any:
    """Is in the place of Keras' own sum, which comes after clipping."""
    return list(grads_and_vars)


def _across_replicas(own: Callable[..., Any]) -> Callable[..., Any]:
    """Has a method of optimizers, which changes what all replicas have, called once for all."""

    def once(optimizer: Any, variables: Any) -> None:
        if _several():
            context = tf.distribute.get_replica_context()
            context.merge_call(lambda strategy: own(optimizer, variables))
        else:
            own(optimizer, variables)

    return once


class _Operations:
    """Keras' operations, as optimizers use them: a condition is one of all replicas.

    In some steps only an optimizer updates with what it has accumulated, or overwrites weights with
    their averages. That concerns all replicas, and no branch of a single one's condition may.
    """

    def __init__(self, own: Any) -> None:
        self._own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def cond(self, pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
        """Has every replica do one thing or the other; `pred` is the same on all of them."""
        if not _several():
            return self._own.cond(pred, true_fn, false_fn)

        def decide(strategy: Any, preds: Any, true_fns: Any, false_fns: Any) -> Any:
            def of_each(functions: Any) -> Any:
                return lambda: strategy.run(lambda function: function(), args=(functions,))

            first = strategy.experimental_local_results(preds)[0]
            return tf.cond(first, of_each(true_fns), of_each(false_fns))

        context = tf.distribute.get_replica_context()
        return context.merge_call(decide, args=(pred, true_fn, false_fn))


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


def _scaling_scalars(losses: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A loss function that returns its own mean is divided by the replicas, as Keras' means are."""

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


def _building_locally(
    strategy: tf.distribute.Strategy,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Builds by what one replica has; Keras would add up the batches of all."""

    def building(own: Callable[..., Any]) -> Callable[..., Any]:
        def build(model: Any, iterator: Any = None, data_batch: Any = None) -> Any:
            if iterator is not None and model.distribute_strategy is strategy:
                _, _, batches = next(iter(iterator))
                iterator, data_batch = None, tf.nest.map_structure(
                    lambda value: strategy.experimental_local_results(value)[0], next(batches)
                )
            return own(model, iterator=iterator, data_batch=data_batch)

        return build

    return building


def _reducing_scalars(own: Callable[..., Any]) -> Callable[..., Any]:
    """Reduces logs, which are scalars, over the workers; Keras would take the mean over an axis."""

    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        if reduction != "auto":
            return own(values, strategy, reduction)
        return tf.nest.map_structure(
            lambda value: strategy.reduce("MEAN", value, axis=None), values
        )

    return reduce_per_replica
