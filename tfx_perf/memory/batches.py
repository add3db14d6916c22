"""Batches of any size from the data that `fit` was given."""

from typing import Any

import numpy as np
import tensorflow as tf

from tfx_perf.core import errors, interception
from tfx_perf.tf_internals import ancestry, datasets

_KERAS_BATCH_SIZE = 32  # the default of `fit` for arrays


def dataset_of(call: interception.FitCall) -> tf.data.Dataset:
    """Returns `fit`'s data as batches, unshuffled if possible; UserError for a generator, say."""
    data = call.arguments["x"]
    if isinstance(data, tf.data.Dataset):
        unshuffled = ancestry.independent(data, without=ancestry.UNORDERED)
        return data if unshuffled is None else unshuffled
    try:
        dataset = tf.data.Dataset.from_tensor_slices(_given(call))
    except (TypeError, ValueError, AttributeError) as error:
        raise errors.UserError(
            "Expected fit to get a tf.data.Dataset or arrays. "
            f"Received: x={type(data).__name__}. Only these can be rebatched."
        ) from error
    return dataset.batch(call.arguments["batch_size"] or _KERAS_BATCH_SIZE)


def first_batch(dataset: tf.data.Dataset) -> Any:
    """Returns the first batch, nested eager tensors; UserError if the dataset is empty."""
    for batch in dataset.take(1):
        return batch
    raise errors.UserError("Expected fit's data to have a batch. Received: an empty dataset.")


def peek(call: interception.FitCall) -> Any:
    """Returns a copy of a batch as `train_step` gets it; None if the data are unusual."""
    arguments = call.arguments
    if isinstance(arguments["x"], tf.data.Dataset):
        like = ancestry.independent(arguments["x"], without=ancestry.UNORDERED)
        return None if like is None else first_batch(like)
    arrays = _given(call)
    if not all(isinstance(array, (np.ndarray, tf.Tensor)) for array in tf.nest.flatten(arrays)):
        return None
    size = arguments["batch_size"] or _KERAS_BATCH_SIZE
    return tf.nest.map_structure(lambda array: tf.convert_to_tensor(array[:size]), arrays)


def _given(call: interception.FitCall) -> tuple[Any, ...]:
    """Returns `x`, `y` and `sample_weight`, up to the last one that was given."""
    arrays = [call.arguments[name] for name in ("x", "y", "sample_weight")]
    while arrays and arrays[-1] is None:
        arrays.pop()
    return tuple(arrays)


def batch_of(dataset: tf.data.Dataset, size: int) -> Any:
    """Returns one batch of `size` real examples; a short dataset is repeated."""
    return first_batch(dataset.repeat().unbatch().batch(size, drop_remainder=True))


def repeated(call: interception.FitCall, batch: Any) -> tf.data.Dataset:
    """Repeats a batch without end; its spec leaves the size open unless `fit`'s own data fix it."""
    data = call.arguments["x"]
    is_dense = all(isinstance(part, tf.Tensor) for part in tf.nest.flatten(batch))
    insists = isinstance(data, tf.data.Dataset) and _static_batch_size(data) == batch_size_of(batch)
    if insists or not is_dense:
        return datasets.repeated(batch)
    opened = tf.nest.map_structure(
        lambda part: tf.TensorSpec([None, *part.shape[1:]] if part.shape else [], part.dtype), batch
    )
    return datasets.repeated(batch, spec=opened)


def _static_batch_size(data: tf.data.Dataset) -> int | None:
    shape = getattr(tf.nest.flatten(data.element_spec)[0], "shape", None)
    return shape[0] if shape is not None and shape.rank else None


def batch_size_of(batch: Any) -> int:
    """Returns the number of examples in a batch of eager tensors."""
    return int(datasets.row_count(batch))


def tensor_bytes(structure: Any) -> int:
    """Returns the bytes of nested eager tensors: strings by length, others by components."""
    tensors = tf.nest.flatten(structure, expand_composites=True)
    return sum(
        int(tf.reduce_sum(tf.strings.length(tensor)))
        if tensor.dtype == tf.string
        else tensor.shape.num_elements() * tensor.dtype.size
        for tensor in tensors
    )


def declared_batch_size(call: interception.FitCall) -> int | None:
    """Returns the batch size that unread data declare; the last may be smaller. None if unusual."""
    data, given = call.arguments["x"], call.arguments["batch_size"]
    if isinstance(data, tf.data.Dataset):
        return _static_batch_size(data) or ancestry.batch_size(data)
    return (given or _KERAS_BATCH_SIZE) if hasattr(data, "shape") else None


def epoch_example_count(
    call: interception.FitCall, dataset: tf.data.Dataset, *, batch_size: int
) -> int | None:
    """Returns about how many examples an epoch has; None if unknown."""
    steps = call.arguments["steps_per_epoch"] or int(dataset.cardinality())
    return steps * batch_size if steps > 0 else None


def spec_of(call: interception.FitCall) -> str:
    """Returns the types and shapes of `fit`'s data as text, without the number of examples."""
    data = call.arguments["x"]
    if hasattr(data, "element_spec"):
        return str(data.element_spec)
    arrays = [data, call.arguments["y"], call.arguments["sample_weight"]]

    def shape_text(array: Any) -> str:
        shape = tuple(getattr(array, "shape", ())[1:])
        return f"{getattr(array, 'dtype', type(array))} {shape}"

    return str(tf.nest.map_structure(shape_text, arrays))
