"""The operations on iterators that TensorFlow keeps for itself."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import iterator_ops


def is_of_dataset(iterator: Any) -> bool:
    """Returns whether an iterator is a dataset's own: no strategy's, which has no one state."""
    return isinstance(iterator, iterator_ops.OwnedIterator)


def saved(iterator: Any) -> tf.Tensor:
    """Returns the state of a dataset's own iterator, shape [parts], of `tf.variant`.

    Raises:
        FailedPreconditionError: a part of the data has a state that cannot be saved; also
            UnimplementedError.
    """
    return tf.raw_ops.SerializeIterator(
        resource_handle=iterator._iterator_resource,
        external_state_policy=tf.data.experimental.ExternalStatePolicy.FAIL.value,
    )


def put_back(iterator: Any, state: tf.Tensor) -> None:
    """Puts an iterator into a state that `saved` returned.

    Raises:
        OpError: the state is that of an iterator over other data.
    """
    tf.raw_ops.DeserializeIterator(
        resource_handle=iterator._iterator_resource, serialized=state
    )


def next_parts(
    iterator: Any, *, dtypes: Sequence[tf.DType], shapes: Sequence[tf.TensorShape]
) -> list[tf.Tensor]:
    """Returns the tensors of the next element, without the time that Python's `next` takes.

    Raises:
        OutOfRangeError: the data ended.
    """
    return tf.raw_ops.IteratorGetNextSync(
        iterator=iterator._iterator_resource, output_types=dtypes, output_shapes=shapes
    )
