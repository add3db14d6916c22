"""One replica's part of a batch; parts may differ in size, as in the last batch."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfx_perf.tf_internals import datasets
from tfx_perf.training.keras_api import per_row_rng
from tfx_perf.training.keras_api.base_api import KerasApi, PartOfBatch, Tensors
from tfx_perf.training.keras_api.per_row_rng import Rows


def part_of(batch: Tensors, *, model: Any, keras_api: KerasApi) -> PartOfBatch | None:
    """Returns this replica's part, None if all have as many rows; all replicas must call it."""
    if not _may_differ(batch):
        return None
    context = tf.distribute.get_replica_context()
    index, count = context.replica_id_in_sync_group, context.num_replicas_in_sync
    rows = tf.cast(datasets.row_count(batch), tf.int32)
    counted = _counted(batch, model=model, keras_api=keras_api)
    rows_here = tf.one_hot(index, count, dtype=tf.float64) * tf.cast(rows, tf.float64)
    # Both are summed at once, in a type that all devices can sum.
    asked = [rows_here, [0.0 if counted is None else counted]]
    summed = context.all_reduce(tf.distribute.ReduceOp.SUM, tf.concat(asked, axis=0))
    all_rows = tf.cast(summed[:-1], tf.int32)
    batch_rows = tf.reduce_sum(all_rows)
    place = Rows(tf.reduce_sum(all_rows[:index]), rows, batch_rows)
    if counted is None:
        return PartOfBatch(share=None, rows=rows, counts_as=None, place=place)
    counts_as = tf.math.divide_no_nan(counted, summed[-1])
    return PartOfBatch(
        share=count * counts_as,  # Keras has divided each replica's mean by `count`
        rows=tf.cast(tf.cast(batch_rows, tf.float64) * counts_as, tf.float32),
        counts_as=tf.cast(counts_as, tf.float32),
        place=place,
    )


def _counted(batch: Tensors, *, model: Any, keras_api: KerasApi) -> tf.Tensor | None:
    """Returns the divisor of the model's mean losses; None if they are not such means."""
    if keras_api.averages_loss(model):
        return tf.cast(datasets.row_count(batch), tf.float64)
    weight = keras_api.unpack(batch)[2]
    reductions = {getattr(loss, "reduction", None) for loss in keras_api.losses(model)}
    by_weight = reductions == {"mean_with_sample_weight"}
    if not by_weight or isinstance(weight, (dict, list, tuple)):
        return None
    return tf.cast(
        datasets.row_count(batch) if weight is None else tf.reduce_sum(weight), tf.float64
    )


def place_of(batch: Tensors, part: PartOfBatch | None) -> Rows | None:
    """Returns the place of rows in the batch; None if they are the whole batch, or unknown."""
    if part is not None:
        return part.place
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return None
    count = datasets.static_row_count(batch)
    if count is None:
        return None
    index = context.replica_id_in_sync_group
    return Rows(index * count, count, context.num_replicas_in_sync * count)


def computed_from_rows(
    compute: Callable[[], Any], batch: Tensors, *, asking_others: Callable[[], Any] | None = None
) -> Any:
    """Returns the result of `compute`, or zeros like it on a replica whose `batch` has no rows.

    Without rows, layers may fail (Conv1D on CPUs), a mean is NaN, and averages would move. Code
    that asks other replicas runs anyway, since they wait for it; `asking_others` then replaces it.
    """
    if not _may_differ(batch) or tf.executing_eagerly():
        return compute()
    results = list[Any]()  # AutoGraph, which converts it in a user's step, takes no annotation

    def computed() -> Any:
        results.append(compute())
        operations = tf.compat.v1.get_default_graph().get_operations()
        if any(each.type.startswith("Collective") for each in operations):
            raise _AsksOthersError
        return results[-1]

    def nothing() -> Any:
        skip()
        return tf.nest.map_structure(_nothing_like, results[-1])

    try:
        with per_row_rng.skippable() as skip:
            return tf.cond(datasets.row_count(batch) > 0, computed, nothing)
    except RuntimeError:  # ours, or TensorFlow's for a `merge_call` in a branch
        return (asking_others or compute)()


class _AsksOthersError(RuntimeError):
    """Raised if code asks other replicas in a branch that not all of them may run."""


def _may_differ(batch: Tensors) -> bool:
    is_one = tf.distribute.get_strategy().num_replicas_in_sync == 1
    return not is_one and not datasets.static_row_count(batch)


def _nothing_like(value: Any) -> Any:
    """Returns zeros of a type and shape, with 0 for unknown lengths; for booleans, True."""
    if value is None:
        return None
    if isinstance(value, tf.IndexedSlices):
        shape = tf.get_static_value(value.dense_shape)
        return tf.IndexedSlices(
            tf.zeros([0, *value.values.shape[1:]], value.dtype),
            tf.zeros([0], value.indices.dtype),
            None if value.dense_shape is None else tf.constant(shape, value.dense_shape.dtype),
        )
    lengths = [length or 0 for length in value.shape] if value.shape.rank is not None else [0]
    return (tf.ones if value.dtype == tf.bool else tf.zeros)(lengths, value.dtype)
