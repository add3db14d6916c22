"""Small things about `tf.data` that more than one floor needs."""

from typing import Any

import tensorflow as tf


def without_autotune(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset with autotune off, for what is fixed or short-lived anyway.

    On TF 2.16 autotune's thread can hold up the end of an iterator for as long as that ran.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def row_count(batch: Any) -> tf.Tensor:
    """Returns the number of rows of a batch, by its first tensor that is no scalar; int64 scalar.

    Args:
        batch: nested structure of dense, ragged or sparse tensors, or None.

    Raises:
        ValueError: there is no such tensor.
    """
    for value in tf.nest.flatten(batch):
        if isinstance(value, tf.RaggedTensor):
            return value.nrows(out_type=tf.int64)
        if value is not None and value.shape.rank != 0:
            return tf.shape(value, out_type=tf.int64)[0]  # of a sparse tensor, its dense shape
    raise ValueError("a batch of nothing but scalars has no rows")


def operations(data: Any) -> set[str]:
    """Returns the names of the operations in a dataset's graph, e.g. `ParallelMapDatasetV2`.

    Args:
        data: the `x` of a `fit`; what is no dataset, or cannot be written down, has none.
    """
    if not isinstance(data, tf.data.Dataset):
        return set()
    try:
        graph = tf.compat.v1.GraphDef.FromString(data._as_serialized_graph().numpy())
    except (tf.errors.OpError, AttributeError, ValueError):
        return set()
    functions = (node for function in graph.library.function for node in function.node_def)
    return {node.op for node in (*graph.node, *functions)}
