"""Has Keras 3 compute over several replicas what it computes on one device.

Its own `fit` clips and unscales the gradients of each replica before it sums them, so that clipping
by norm gives other updates, and other replicas do not see an overflow on one. It fails if an
optimizer updates weights only in some steps. It drops the same units on all replicas, and it cannot
train on several workers at all. tf_keras does all of that right.
"""

import contextlib
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfx_perf.core import interception
from tfx_perf.core.interception import Replacement
from tfx_perf.distribute.reduction import summed
from tfx_perf.training.keras_api import per_row_rng
from tfx_perf.training.keras_api.base_api import traced_apart

_SEEDS_APART = 7919  # between two replicas; a prime, since users seed layers with 1, 2, 3
_DRAWS_OF_SHAPES = ("normal", "uniform", "truncated_normal", "randint")


@contextlib.contextmanager
def in_keras3(model: Any, *, reduction_dtype: str | None, draws_by_rows: bool) -> Iterator[None]:
    """Has Keras 3 train over replicas as on one device in the context; see `over_replicas`."""
    keras = importlib.import_module("keras")
    generator = keras.random.SeedGenerator
    replaced = [
        *replacements(reduction_dtype),
        (keras.layers.BatchNormalization, "_moments", _moments_of_rows),
        (generator, "next", per_row_rng.noted),
        *([] if draws_by_rows else [(generator, "next", _own_seeds)]),
    ]
    with interception.replacing_all(replaced), traced_apart(model):
        yield


def drawing_by_rows() -> contextlib.AbstractContextManager[None]:
    """Returns a context in which Keras 3 draws by rows; see `per_row_rng`."""
    module = importlib.import_module("keras.src.backend.tensorflow.random")
    drawing = [(module, name, per_row_rng.drawing) for name in _DRAWS_OF_SHAPES]
    return interception.replacing_all([*drawing, (module, "dropout", per_row_rng.dropping)])


def _moments_of_rows(original: Callable[..., Any]) -> Callable[..., Any]:
    """Has a replica without rows, as in a short last batch, keep the moving averages."""

    def moments(layer: Any, inputs: Any, mask: Any) -> Any:
        averages = map(tf.convert_to_tensor, (layer.moving_mean, layer.moving_variance))
        has_rows = tf.size(inputs) > 0
        computed = original(layer, inputs, mask)
        return tuple(
            tf.where(has_rows, new, tf.cast(old, new.dtype))
            for new, old in zip(computed, averages, strict=True)
        )

    return moments


def _own_seeds(original: Callable[..., Any]) -> Callable[..., Any]:
    """Has each replica draw different numbers; Keras drops the same units in all of them."""

    def next_seed(generator: Any, *arguments: Any, **named: Any) -> tf.Tensor:
        seed = original(generator, *arguments, **named)
        context = tf.distribute.get_replica_context()
        if context is None or context.num_replicas_in_sync == 1:
            return seed
        replica = tf.cast(context.replica_id_in_sync_group, seed.dtype)
        return seed + tf.stack([_SEEDS_APART * replica, tf.zeros_like(replica)])

    return next_seed


def replacements(reduction_dtype: str | None) -> Iterator[Replacement]:
    """Yields replacements in Keras' classes, since a model may contain several optimizers."""
    optimizers = importlib.import_module("keras").optimizers
    summing = _SummingOnce(reduction_dtype)
    yield optimizers.LossScaleOptimizer, "apply", summing.scaled
    yield optimizers.LossScaleOptimizer, "check_finite", summing.checked
    yield optimizers.Optimizer, "_backend_apply_gradients", summing.noted
    yield optimizers.Optimizer, "_clip_gradients", summing.clipped
    yield from in_some_steps()


def in_some_steps() -> Iterator[Replacement]:
    """Yields replacements for optimizers that update only in some steps, where Keras fails."""
    optimizer = importlib.import_module("keras").optimizers.Optimizer
    # Keras' own sum comes after clipping.
    yield optimizer, "_all_reduce_sum_gradients", lambda original: lambda self, pairs: list(pairs)
    yield optimizer, "_overwrite_model_variables_with_average_value", _across_replicas
    yield importlib.import_module("keras.src.optimizers.base_optimizer"), "ops", _Operations


def _under_strategy() -> bool:
    return tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context()


def _several() -> bool:
    context = tf.distribute.get_replica_context()
    return context is not None and context.num_replicas_in_sync > 1


class _SummingOnce:
    """Sums the gradients over all replicas once, before an optimizer clips them.

    Gradients of a scaled loss are summed before they are unscaled, so that an overflow of the sum
    is found. Those accumulated for later steps must not depend on the scale: there each replica
    looks for an overflow first, and all skip the step. Keras has divided by the replica count.
    """

    def __init__(self, dtype: str | None) -> None:
        self._dtype = dtype
        self._inner: list[Any] = []  # optimizers that get summed gradients
        self._weights: dict[int, list[Any]] = {}  # by the id of the optimizer that trains them

    def scaled(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a loss-scaling optimizer's `apply` that first sums the gradients."""

        def apply(optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
            if _several() and not self._checks_own_overflow(optimizer):
                self._inner.append(optimizer.inner_optimizer)
                grads = self._summed(list(grads), trainable_variables or ())
            return original(optimizer, grads, trainable_variables)

        return apply

    def checked(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Returns its `check_finite` that has all replicas take the step, or none of them."""

        def check_finite(optimizer: Any, grads: Any) -> tf.Tensor:
            is_finite = original(optimizer, grads)
            if not (_several() and self._checks_own_overflow(optimizer)):
                return is_finite
            context = tf.distribute.get_replica_context()
            overflows = tf.cast(tf.logical_not(is_finite), tf.int32)
            return context.all_reduce(tf.distribute.ReduceOp.SUM, overflows) == 0

        return check_finite

    def noted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the method that applies gradients, and first notes their weights."""

        def backend_apply_gradients(optimizer: Any, grads: Any, trainable_variables: Any) -> Any:
            self._weights[id(optimizer)] = list(trainable_variables)
            return original(optimizer, grads, trainable_variables)

        return backend_apply_gradients

    def clipped(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the method that clips gradients, and first sums them if that is not done."""

        def clip(optimizer: Any, grads: Any) -> Any:
            is_summed = any(optimizer is inner for inner in self._inner)
            if _several() and not is_summed:
                grads = self._summed(grads, self._weights[id(optimizer)])
            return original(optimizer, grads)

        return clip

    def _checks_own_overflow(self, scaling: Any) -> bool:
        return bool(scaling.inner_optimizer.gradient_accumulation_steps)

    def _summed(self, grads: Sequence[Any], weights: Sequence[Any]) -> list[Any]:
        def sum_up(given: Any, _: Any) -> Any:
            context = tf.distribute.get_replica_context()  # may be that of a branch
            return context.all_reduce(tf.distribute.ReduceOp.SUM, given)

        present = [n for n, each in enumerate(grads) if each is not None]
        weighed = [weights[n] for n in present] if weights else [None] * len(present)
        sums = summed([grads[n] for n in present], weighed, sum_up=sum_up, dtype=self._dtype)
        by_number = dict(zip(present, sums, strict=True))
        return [by_number.get(n) for n in range(len(grads))]


def _across_replicas(original: Callable[..., Any]) -> Callable[..., Any]:
    """Has a method of optimizers that changes the state of all replicas called once for all."""

    def once(optimizer: Any, variables: Any) -> None:
        if _under_strategy():
            context = tf.distribute.get_replica_context()
            context.merge_call(lambda strategy: original(optimizer, variables))
        else:
            original(optimizer, variables)

    return once


class _Operations:
    """Keras' operations for optimizers, with conditions that all replicas share."""

    def __init__(self, original: Any) -> None:
        self._own = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def cond(self, pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
        """Has all replicas take the same branch; `pred` is equal on all of them."""
        if not _under_strategy():
            return self._own.cond(pred, true_fn, false_fn)

        def decide(strategy: Any, preds: Any, true_fns: Any, false_fns: Any) -> Any:
            def of_each(functions: Any) -> Any:
                return lambda: strategy.run(lambda function: function(), args=(functions,))

            first = strategy.experimental_local_results(preds)[0]
            return tf.cond(first, of_each(true_fns), of_each(false_fns))

        context = tf.distribute.get_replica_context()
        return context.merge_call(decide, args=(pred, true_fn, false_fn))
