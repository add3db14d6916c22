"""Slices of a batch: whether they are possible, their rows, and the sum of their gradients."""

from typing import Any

import tensorflow as tf

from tfx_perf.training.keras_api.base_api import KerasApi, Tensors, all_layers, optimizers
from tfx_perf.training.keras_api.private_attributes import is_of_package

Gradients = list[Any]  # tf.Tensor, tf.IndexedSlices or None

# Methods of optimizers that scale the loss.
_SCALING = ("scale_loss", "get_scaled_loss", "get_unscaled_gradients")


def slicing_obstacle(model: Any, keras_api: KerasApi) -> str | None:
    """Returns why the gradient of a batch cannot be summed over slices, None if it can.

    A user's own `compute_loss` is assumed to be a mean over the rows, as Keras' losses are.
    """
    reason = keras_api.splitting_obstacle(model)
    if reason:
        return reason
    if not keras_api.averages_loss(model):
        return "a loss is not the mean over the rows of the batch"
    if not all(
        is_of_package(optimizer, name, keras_api.package)
        for optimizer in optimizers(model)
        for name in _SCALING
    ):
        return "the optimizer scales the loss in its own way"
    if keras_api.overrides_metrics(model):  # it may read weights, but runs before their update
        return "the model has its own compute_metrics"
    layers, recurrent = all_layers(model), keras_api.layers.RNN
    if any(isinstance(each, recurrent) and each.stateful for each in layers):
        return "a stateful layer remembers each row of the batch"
    asks_others = any(getattr(layer, "synchronized", False) for layer in layers)
    if asks_others and model.distribute_strategy.num_replicas_in_sync > 1:
        return "a layer asks the other replicas, which may have fewer slices"
    return None


def rows(batch: Tensors, begin: tf.Tensor, size: tf.Tensor) -> Tensors:
    """Returns `size` rows from `begin` on (int32 scalars) of every tensor that is not a scalar."""

    def cut(tensor: Any) -> Any:
        if tensor is None or tensor.shape.rank == 0:
            return tensor
        if isinstance(tensor, tf.SparseTensor):
            whole = tensor.dense_shape
            start = tf.concat([[tf.cast(begin, tf.int64)], tf.zeros_like(whole[1:])], axis=0)
            extent = tf.concat([[tf.cast(size, tf.int64)], whole[1:]], axis=0)
            part = tf.sparse.slice(tensor, start, extent)
            # Known dimensions must stay known, because layers need the last one.
            part.set_shape([None, *tensor.shape[1:]])
            return part
        return tensor[begin : begin + size]

    return tf.nest.map_structure(cut, batch)


def bounds(
    row_total: tf.Tensor, *, pieces: tf.Tensor, index: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns a piece's begin and length, as int32 scalars; pieces differ by one row at most."""
    size, longer = row_total // pieces, row_total % pieces
    return index * size + tf.minimum(index, longer), size + tf.cast(index < longer, tf.int32)


def begin_sum(gradient: Any, *, terms: tf.Tensor) -> Any:
    """Returns a loop variable: a sum that will have several terms, with its first one.

    Sparse gradients are concatenated, not made dense: the result is that of the whole batch, row
    for row, so that optimizer and clipping treat repeated indices in the same way.
    """
    if gradient is None:
        return ()
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient

    def array(part: tf.Tensor) -> tf.TensorArray:
        shape = [None, *part.shape[1:]]
        return tf.TensorArray(part.dtype, terms, infer_shape=False, element_shape=shape)

    arrays = array(gradient.values), array(gradient.indices)
    return add(arrays, gradient, index=tf.constant(0))


def add(sum_: Any, gradient: Any, *, index: tf.Tensor) -> Any:
    """Returns a sum plus the term with this index, counted from 0."""
    if gradient is None:
        return ()
    if not isinstance(gradient, tf.IndexedSlices):
        return sum_ + gradient
    values, indices = sum_
    return values.write(index, gradient.values), indices.write(index, gradient.indices)


def end_sum(sum_: Any, *, first: Any) -> Any:
    """Returns a sum as a gradient like its first term."""
    if first is None:
        return None
    if not isinstance(first, tf.IndexedSlices):
        return sum_
    values, indices = sum_
    return tf.IndexedSlices(values.concat(), indices.concat(), first.dense_shape)
